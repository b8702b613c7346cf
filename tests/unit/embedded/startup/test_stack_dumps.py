"""Ranks that write their stacks when a signal comes: several tasks and a sitecustomize of the user's side by side."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Iterator

import pytest

from musterpoint.cli.bundle import archive
from musterpoint.core.launch.inputs import STARTUP, TASKS
from musterpoint.embedded.programs import process_stacks


@contextmanager
def rank_of(environ: dict[str, str], code: str, *words: str, **more: Any) -> Iterator[subprocess.Popen[bytes]]:
    """A program whose stacks can be asked for, from its line ``ready`` on; it is killed at the end."""
    environ = {**environ, "PYTHONPATH": STARTUP, TASKS: "stack_dumps"}
    argv = [sys.executable, "-c", code, *words]
    with subprocess.Popen(argv, env=environ, stdout=subprocess.PIPE, start_new_session=True, **more) as rank:
        try:
            assert rank.stdout is not None
            assert rank.stdout.readline() == b"ready\n"
            yield rank
        finally:
            with suppress(ProcessLookupError):
                os.killpg(rank.pid, signal.SIGKILL)


def asked(pid: int) -> list[dict[str, Any]] | None:
    """The threads of a process, as it says itself."""
    return process_stacks.stacks_of([pid], "-")[pid][0]


PROGRAM = """
import threading, time

def waits():
    print("ready", flush=True)
    time.sleep(60)

threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
waits()
"""


@pytest.mark.parametrize("packed", [False, True])
def test_the_stacks_of_a_rank(tmp_path: Path, environ: dict[str, str], packed: bool) -> None:
    folder = STARTUP
    if packed:
        (tmp_path / "launcher.zip").write_bytes(archive(str(Path(STARTUP).parents[3])))
        folder = f"{tmp_path}/launcher.zip/musterpoint/embedded/startup/path"
    (tmp_path / "sitecustomize.py").write_text("print('theirs', flush=True)")
    environ |= {"PYTHONPATH": os.pathsep.join([folder, str(tmp_path)]), TASKS: "jax_cluster,stack_dumps"}
    rank = subprocess.Popen([sys.executable, "-c", PROGRAM], env=environ, stdout=subprocess.PIPE)
    assert rank.stdout is not None
    assert [rank.stdout.readline() for _ in range(2)] == [b"theirs\n", b"ready\n"]
    for _ in range(2):
        threads = asked(rank.pid) or []
        main = next(thread for thread in threads if thread["name"] == "MainThread")
        assert [frame[0] for frame in main["frames"]] == ["waits", "<module>"]
        assert len(threads) == 3  # and ours, which answers
    rank.kill()
    rank.communicate()


def test_for_how_many_ranks_torch_makes_a_group(environ: dict[str, str]) -> None:
    group = "def make(world_size):\n print('ready', flush=True)\n time.sleep(60)\n"
    code = f"import time\nexec(compile({group!r}, '/x/torch/distributed/a.py', 'exec'))\nmake(8)"
    with rank_of(environ, code) as rank:
        assert [thread["world"] for thread in asked(rank.pid) or [] if "world" in thread] == [8]
    locals_ = [{"name": "world_size", "repr": size} for size in ("-1", "8")]
    frames = [{"filename": f"{folder}/a.py", "locals": locals_} for folder in ("mine", "torch/distributed")]
    assert [process_stacks.world_of([frame]) for frame in frames] == [{}, {"world": 8}]


SLEEPS = """
import ctypes, os, signal, sys

def sleeps():
    print("ready", flush=True)
    print("woken with", ctypes.PyDLL(None).sleep(600), "left", flush=True)

def polls():
    fds = (ctypes.c_byte * 8)()
    print("ready", flush=True)
    print("woken with", ctypes.PyDLL(None).poll(fds, 0, 600_000), flush=True)

signal.signal(signal.SIGTERM, lambda *_: sys.exit(3))
signal.signal(signal.SIGALRM, signal.SIG_DFL)
globals()[sys.argv[1]]()
"""


@pytest.mark.parametrize("call", ["sleeps", "polls"])
def test_a_look_ends_no_call_of_c_code_and_a_signal_of_others_does(environ: dict[str, str], call: str) -> None:
    with rank_of(environ, SLEEPS, call) as rank:
        for _ in range(2):
            (main,) = [thread for thread in asked(rank.pid) or [] if thread["name"] == "MainThread"]
            assert [frame[0] for frame in main["frames"]] == [call, "<module>"]
        rank.terminate()
        said, _ = rank.communicate()
    assert (rank.returncode, said) == (3, b""), "only SIGTERM has ended the call, by an exception"


IN_C = """
import ctypes

def waits():
    ctypes.PyDLL(None).system(b"echo ready; exec sleep 600")

waits()
"""


def test_who_cannot_answer_is_waited_for_once_and_together(
    environ: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """C code keeps Python's lock in both ranks: a look at both takes as long as one at one, the next one no time."""
    limits = []
    answer = process_stacks.Question._answer

    def noted(self: process_stacks.Question, until: float) -> str:
        limits.append(until)
        return answer(self, until)

    monkeypatch.setattr(process_stacks.Question, "_answer", noted)
    monkeypatch.setattr(process_stacks, "FEW_TURNS", 1)  # however busy this machine is
    monkeypatch.setattr(process_stacks, "SILENT", {})
    with rank_of(environ, IN_C) as one, rank_of(environ, IN_C) as other:
        found = [process_stacks.stacks_of([one.pid, other.pid], "-") for _look in range(2)]
    assert all(threads for each in found for threads, _error in each.values())
    assert len(limits) == 2, "the thread of each is waited for once; a signal answers the second look"
    assert limits[0] == limits[1], "for both together"


LATE = """
import ctypes, time

def waits():
    ctypes.PyDLL(None).system(b"echo ready; read line")

waits()
time.sleep(600)
"""


def test_who_answered_late_is_asked_again(environ: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Its answer comes behind what the signal had it write, at any moment of a look."""
    monkeypatch.setattr(process_stacks, "SILENT", {})
    monkeypatch.setattr(process_stacks, "ANSWER_SECONDS", 1.0)
    monkeypatch.setattr(process_stacks, "FEW_TURNS", 1)  # however busy this machine is
    with rank_of(environ, LATE, stdin=subprocess.PIPE) as rank:
        for _look in range(2):
            found = asked(rank.pid) or []
            assert [frame[0] for thread in found for frame in thread["frames"]].count("waits") == 1
            assert rank.pid in process_stacks.SILENT
        assert rank.stdin is not None
        rank.stdin.write(b"go on\n")
        rank.stdin.flush()
        while rank.pid in process_stacks.SILENT:
            asked(rank.pid)
        monkeypatch.setattr(process_stacks, "ANSWER_SECONDS", 500.0)
        assert asked(rank.pid)
        assert rank.pid not in process_stacks.SILENT


def test_no_signal_is_sent_where_a_busy_machine_may_be_the_reason() -> None:
    """Its handler would read stacks that change meanwhile, which ends the process by SIGSEGV."""
    Spent, keeps = process_stacks.Spent, process_stacks.keeps_lock
    before = {1: Spent(10, 50, True), 2: Spent(5, 0, False)}
    assert keeps(before, {1: Spent(10, 500, True), 2: Spent(900, 9, False)}, 2), "C code computes"
    assert keeps(before, {1: Spent(11, 50, False), 2: Spent(900, 9, False)}, 2), "C code waits"
    assert not keeps(before, {1: Spent(10, 500, True), 2: Spent(20, 0, False)}, 2), "ours didn't have its turn"
    assert not keeps(before, {1: Spent(10, 52, True), 2: Spent(900, 9, False)}, 2), "the main thread wants to run"
    assert not keeps(before, {**before, 3: Spent(0, 2, True), 2: Spent(900, 9, False)}, 2), "so does a new one"
    assert not keeps(before, {1: Spent(10, 500, True)}, 2), "ours has gone"


FORKS = """
import os, time
if os.fork() == 0:
    os.write(1, b"ready\\n%d\\n" % os.getpid())
time.sleep(600)
"""


def test_a_forked_process_is_not_woken(environ: dict[str, str]) -> None:
    """It has no thread of ours: while it sleeps it is left alone."""
    with rank_of(environ, FORKS) as rank:
        assert rank.stdout is not None
        child = int(rank.stdout.readline())
        assert asked(rank.pid) is not None
        assert asked(child) is None


def test_a_process_without_a_handler_is_not_signalled() -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        assert asked(process.pid) is None
        process.communicate(b"\n")
    assert process.returncode == 0


def test_answers_are_kept_within_bounds(environ: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """The rank begins its file anew; who asks still finds the answer, without a signal, whose handler reads stacks
    that may change meanwhile."""
    monkeypatch.setattr(process_stacks, "TGKILL", -1)
    monkeypatch.setattr(process_stacks, "ANSWER_SECONDS", 500.0)
    with rank_of(environ, PROGRAM) as rank:
        folder = Path(f"/proc/{rank.pid}/fd")
        (held,) = [each for each in folder.iterdir() if f"memfd:{process_stacks.STACKS_FILE}" in os.readlink(each)]
        for size in (0, 2 << 20, 0):
            os.truncate(held, max(size, held.stat().st_size))
            found = asked(rank.pid) or []
            assert "MainThread" in [thread["name"] for thread in found]
            assert 0 < held.stat().st_size < 1 << 20
