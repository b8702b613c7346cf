"""Who stands in front of a rank's programs, and when each of them gets the signal to end."""

from __future__ import annotations

import os
import shutil
import signal
import stat
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from musterpoint.core.processes import shell_front
from musterpoint.core.processes.shell_front import Front, Turns
from musterpoint.core.processes.signal_once import pass_on

TERM = 1 << (signal.SIGTERM - 1)
READS, WRITES = stat.S_IRUSR, stat.S_IWUSR


class Row(NamedTuple):
    """A process below 10, which is a shell. ``reads``, ``writes``: pipes by name, as its stdin and stdout."""

    pid: int
    comm: str
    parent: int = 10
    reads: str = ""
    writes: str = ""
    catches: int = 0
    ignores: int = 0


def write_proc(root: Path, rows: list[Row]) -> str:
    for row in rows:
        folder = root / str(row.pid)
        (folder / "fd").mkdir(parents=True)
        (folder / "stat").write_text(f"{row.pid} ({row.comm}) S {row.parent} 1 1 0")
        masks = f"SigCgt:\t{row.catches:016x}\nSigIgn:\t{row.ignores:016x}\nSigBlk:\t{0:016x}\n"
        (folder / "status").write_text(f"Name:\t{row.comm}\n{masks}")
        for fd, pipe in ((0, row.reads), (1, row.writes)):
            if pipe:
                fifo = root / pipe
                if not fifo.exists():
                    os.mkfifo(fifo)
                (folder / "fd" / str(fd)).symlink_to(fifo)
    return str(root)


BASH = Row(10, "bash", 1)
TURNS: dict[str, tuple[list[Row], dict[int, str]]] = {
    "a program": ([Row(10, "python", 1), Row(11, "worker")], {10: "now"}),
    "a shell around a program": ([BASH, Row(11, "python"), Row(12, "worker", 11)], {10: "held", 11: "now"}),
    "with a trap": ([BASH._replace(catches=TERM), Row(11, "python")], {10: "held", 11: "now"}),
    "shells in shells": (
        [BASH, Row(11, "sh"), Row(12, "python", 11), Row(13, "worker", 12)],
        {10: "held", 11: "held", 12: "now"},
    ),
    "a shell alone": ([BASH], {10: "now"}),
    "a copy that is nothing yet": ([BASH, Row(11, "bash"), Row(12, "python")], {10: "held", 11: "now", 12: "now"}),
    "who runs one program gets none": ([BASH, Row(11, "timeout"), Row(12, "python", 11)], {10: "held", 12: "now"}),
    "who stops with its child goes on with it": (
        [BASH, Row(11, "su"), Row(12, "sh", 11), Row(13, "python", 12)],
        {10: "held", 11: "continued", 12: "held", 13: "now"},
    ),
    "a tracer": ([Row(10, "strace", 1), Row(11, "python")], {11: "now"}),
    "what reads another's output ends with it": (
        [BASH, Row(11, "python", writes="a"), Row(12, "cat", reads="a", writes="b"), Row(13, "tee", reads="b")],
        {10: "held", 11: "now", 12: "late", 13: "late"},
    ),
    "also the shell's own": (
        [BASH._replace(writes="a"), Row(11, "python", writes="a"), Row(12, "tee", reads="a")],
        {10: "held", 11: "now", 12: "late"},
    ),
    "a pipe from outside is nobody's output": (
        [BASH, Row(11, "python", reads="o"), Row(12, "cat", reads="o")],
        {10: "held", 11: "now", 12: "now"},
    ),
    "a reader that catches the signal gets it": (
        [BASH, Row(11, "python", writes="a"), Row(12, "filter", reads="a", catches=TERM)],
        {10: "held", 11: "now", 12: "now"},
    ),
    "two that read each other's output": (
        [BASH, Row(11, "python", reads="b", writes="a"), Row(12, "server", reads="a", writes="b")],
        {10: "held", 11: "now", 12: "now"},
    ),
    "a shell that feeds a program": (
        [BASH, Row(11, "bash", writes="a"), Row(12, "cat", 11, writes="a"), Row(13, "python", reads="a", catches=TERM)],
        {10: "held", 11: "now", 12: "now", 13: "now"},
    ),
    "a shell that reads a program": (
        [BASH, Row(11, "python", writes="a"), Row(12, "bash", reads="a"), Row(13, "date", 12)],
        {10: "held", 11: "now", 12: "reads", 13: "now"},
    ),
    "a shell that something beside its program could talk to": (
        [BASH._replace(reads="b", writes="a"), Row(11, "bash", reads="a", writes="b"), Row(12, "python")],
        {10: "held", 11: "held", 12: "now"},
    ),
    "a program that ignores the signal, and one below it": (
        [BASH, Row(11, "python", ignores=TERM), Row(12, "python", 11)],
        {10: "held", 11: "now", 12: "now"},
    ),
    "a program that talks with its shell": (
        [BASH._replace(reads="b", writes="a"), Row(11, "python", reads="a", writes="b")],
        {10: "now", 11: "now"},
    ),
}  # fmt: skip


def turns_at_a_stop(rows: list[Row], root: Path) -> Turns:
    """The turns of the front of 10, all of whose shells are held that may be."""
    proc = write_proc(root, rows)
    front = shell_front.front_of(10, signal.SIGTERM, proc)
    return shell_front.turns(front, signal.SIGTERM, front.stoppable(proc), proc)


@pytest.mark.parametrize("name", TURNS)
def test_everybody_has_a_turn(name: str, tmp_path: Path) -> None:
    rows, expected = TURNS[name]
    turns = turns_at_a_stop(rows, tmp_path)
    assert turns.turns == expected
    assert set(turns.before) == {pid for pid, turn in expected.items() if turn != "now"}


BEFORE: dict[str, tuple[list[Row], dict[int, set[int]]]] = {
    "inner shells are told first": (
        [BASH, Row(11, "sh"), Row(12, "python", 11), Row(13, "server")], {10: {11, 12, 13}, 11: {12}},
    ),
    "a pipe's readers are through before its shell goes on": (
        [BASH, Row(11, "python", writes="a"), Row(12, "tee", reads="a")], {10: {11, 12}, 12: {11}},
    ),
    "but for those that read what the shell writes": (
        [BASH._replace(writes="a"), Row(11, "python", writes="a"), Row(12, "tee", reads="a")],
        {10: {11}, 12: {10, 11}},
    ),
    "nobody waits for a helper that ignores the signal": (
        [BASH, Row(11, "python"), Row(12, "bash", ignores=TERM), Row(13, "sleep", 12, ignores=TERM)],
        {10: {11}, 12: set()},
    ),
    "but for one that runs others": (
        [BASH, Row(11, "python", ignores=TERM), Row(12, "python", 11)], {10: {11, 12}},
    ),
    "and for programs where all ignore it": (
        [BASH, Row(11, "python", ignores=TERM)], {10: {11}},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", BEFORE)
def test_a_turn_is_behind_others(name: str, tmp_path: Path) -> None:
    rows, expected = BEFORE[name]
    assert turns_at_a_stop(rows, tmp_path).before == expected


def test_who_carries_a_terminal_must_run_and_so_must_the_shell_below(tmp_path: Path) -> None:
    proc = write_proc(tmp_path, [BASH, Row(11, "script"), Row(12, "sh", 11), Row(13, "python", 12)])
    assert shell_front.front_of(10, signal.SIGTERM, proc).stoppable(proc) == [10, 12]
    (tmp_path / "11/fd/3").symlink_to("/dev/ptmx")
    front = shell_front.front_of(10, signal.SIGTERM, proc)
    assert front.stoppable(proc) == [10]
    assert shell_front.turns(front, signal.SIGTERM, [10], proc).turns[12] == "after"


SHELLS = {
    "bash": "bash {script}",
    "dash": "dash {script}",
    "a script by its path": "{script}",
    "in a shell": "sh -c 'bash {script}; exit $?'",
    "a function in a subshell": "bash -c 'f() {{ (exec bash {script}); }}; f; exit $?'",
    "busybox": "busybox sh {script}",
}


@pytest.mark.parametrize("how", SHELLS)
def test_a_front_of_real_shells_ends_with_their_programs(how: str, tmp_path: Path) -> None:
    if how == "busybox" and shutil.which("busybox") is None:
        how = "dash"  # an image of BusyBox has no other; here it may be missing
    script = tmp_path / "run.sh"
    script.write_text("#!/bin/bash\necho ready\ncat\nexit $?\n")
    script.chmod(0o755)
    with subprocess.Popen(
        ["bash", "-c", SHELLS[how].format(script=script) + "; exit $?"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdin is not None and process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        process.stdin.write(b"x\n")
        process.stdin.flush()
        assert process.stdout.readline() == b"x\n", "cat runs"
        front = shell_front.front_of(process.pid)
        (program,) = front.programs
        assert Path(f"/proc/{program}/comm").read_text() == "cat\n"
        assert front.members()[-1] == program and [process.pid, *front.shells][0] == process.pid
        process.stdin.close()
    assert process.returncode == 0


def test_a_front_that_has_ended_is_itself_alone() -> None:
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    assert shell_front.front_of(process.pid) == Front(process.pid, {}, [], {}, [process.pid])


PASSED = (
    "import signal, sys; signal.pthread_sigmask(signal.SIG_BLOCK, [10]); "
    "print('ready', flush=True); signal.sigwait([10]); sys.exit(7)"
)


@pytest.mark.parametrize("shell", [False, True])
def test_a_signal_is_passed_on_to_the_program_past_the_shells_in_front_of_it(shell: bool) -> None:
    program = [sys.executable, "-c", PASSED]
    argv = ["sh", "-c", '"$@"; exit $?', "sh", *program] if shell else program
    process = subprocess.Popen(argv, stdout=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline() == b"ready\n"
    pass_on(process.pid, signal.SIGUSR1)
    process.communicate(timeout=500)
    assert process.returncode == 7


def test_a_trap_counts_for_its_own_signal(tmp_path: Path) -> None:
    proc = write_proc(tmp_path, [BASH._replace(catches=TERM), Row(11, "python")])
    assert shell_front.hearers(10, signal.SIGUSR1, proc) == [11]
    assert shell_front.hearers(10, signal.SIGTERM, proc) == [11, 10]
