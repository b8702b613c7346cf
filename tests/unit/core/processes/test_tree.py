"""Processes found, signalled and killed, orphans among them; the facts come from real processes."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from musterpoint.core.processes import tree

from ...running import result_of

Pipes = dict[tuple[int, int], int]


def write_proc(root: Path, rows: list[tuple[int, str, str, int, int]], pipes: Pipes | None = None) -> str:
    """A /proc of ``(pid, comm, state, parent, caught signals)`` and ``{(pid, descriptor): pipe}``."""
    for pid, comm, state, parent, caught in rows:
        (root / str(pid)).mkdir()
        (root / str(pid) / "stat").write_text(f"{pid} ({comm}) {state} {parent} 1 1 0")
        (root / str(pid) / "status").write_text(f"Name:\t{comm}\nSigCgt:\t{caught:016x}\n")
        (root / str(pid) / "fd").mkdir()
    for (pid, descriptor), pipe in (pipes or {}).items():
        (root / str(pid) / "fd" / str(descriptor)).symlink_to(f"pipe:[{pipe}]")
    return str(root)


def test_descendants_leave_zombies_out(tmp_path: Path) -> None:
    proc = write_proc(tmp_path, [
        (10, "python", "S", 1, 0), (11, "a) (b", "S", 10, 0), (12, "gone", "Z", 10, 0), (13, "deep", "R", 12, 0),
        (14, "other", "S", 1, 0),
    ])  # fmt: skip
    assert sorted(stat.pid for stat in tree.descendants(10, proc)) == [11, 13]
    several = tree.descendants_of([10, 12, 14], proc)
    assert {root: sorted(stat.pid for stat in below) for root, below in several.items()} == {
        10: [11, 13], 12: [13], 14: [],
    }  # fmt: skip


TERM = 1 << (signal.SIGTERM - 1)
TARGETS = {
    "a program": ([(10, "python", "S", 1, 0), (11, "worker", "S", 10, 0)], [10]),
    "a shell around a program": ([(10, "bash", "S", 1, 0), (11, "python", "S", 10, 0)], [11]),
    "shells in shells": ([(10, "sh", "S", 1, 0), (11, "bash", "S", 10, 0), (12, "python", "S", 11, 0),
                          (13, "worker", "S", 12, 0)], [12]),
    "a shell with a trap": ([(10, "bash", "S", 1, TERM), (11, "python", "S", 10, 0)], [11, 10]),
    "a shell alone": ([(10, "bash", "S", 1, 0)], [10]),
}  # fmt: skip


@pytest.mark.parametrize("name", TARGETS)
def test_stop_targets(name: str, tmp_path: Path) -> None:
    rows, expected = TARGETS[name]
    targets = tree.stop_targets(10, signal.SIGTERM, write_proc(tmp_path, rows))
    assert targets.programs + targets.trapping == expected


PIPELINE = [(10, "bash", "S", 1, 0), (11, "python", "S", 10, 0), (12, "cat", "S", 10, 0), (13, "tee", "S", 10, 0)]
PIPELINES: dict[str, tuple[int, Pipes, list[int]]] = {
    "what reads another's output ends with it": (0, {(11, 1): 1, (12, 0): 1, (12, 1): 2, (13, 0): 2}, [11]),
    "also its errors, and the shell's own": (0, {(11, 2): 1, (12, 0): 1, (10, 1): 2, (13, 0): 2}, [11]),
    "a pipe from outside is nobody's output": (0, {(11, 0): 9, (12, 0): 9, (13, 0): 9}, [11, 12, 13]),
    "a reader that catches the signal gets it": (TERM, {(11, 1): 1, (12, 0): 1, (12, 1): 2, (13, 0): 2}, [11, 12]),
}


@pytest.mark.parametrize("name", PIPELINES)
def test_stop_targets_of_a_pipeline(name: str, tmp_path: Path) -> None:
    caught, pipes, expected = PIPELINES[name]
    rows = [(*row[:4], caught if row[0] == 12 else 0) for row in PIPELINE]
    targets = tree.stop_targets(10, signal.SIGTERM, write_proc(tmp_path, rows, pipes))
    assert sorted(targets.programs) == expected
    assert targets.seen == {10, 11, 12, 13}


def test_a_trap_counts_for_its_own_signal(tmp_path: Path) -> None:
    proc = write_proc(tmp_path, [(10, "bash", "S", 1, TERM), (11, "python", "S", 10, 0)])
    assert tree.stop_targets(10, signal.SIGUSR1, proc).trapping == []


def test_catches_reads_a_real_process() -> None:
    code = "import signal, sys; signal.signal(signal.SIGTERM, lambda *_: None); print(1, flush=True); sys.stdin.read()"
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        child.stdout.readline()
        assert tree.catches(child.pid, signal.SIGTERM)
        assert not tree.catches(child.pid, signal.SIGUSR2)
        child.communicate()


OWN = """
import os, sys, threading
from pathlib import Path
from musterpoint.core.processes import tree

started, go, (hold, held) = threading.Event(), threading.Event(), os.pipe()
pids = []

def fork(waits):
    pids.append(os.fork())
    if pids[-1] == 0:
        os.read(hold, 1) if waits else None
        os._exit(0)

def from_a_thread():
    fork(True)
    started.set()
    go.wait()

thread = threading.Thread(target=from_a_thread)
thread.start()
started.wait()
fork(True)
fork(False)
os.waitid(os.P_PID, pids[-1], os.WEXITED | os.WNOWAIT)  # a zombie, which has to be waited for
asked = sorted(stat.pid for stat in tree.own_children())
tree.open = lambda path, mode: open(path + ".no" if path.endswith("children") else path, mode)
read = sorted(stat.pid for stat in tree.own_children())
assert asked == read == sorted(pids), (asked, read, pids)
os.write(held, b"..")
for pid in pids:
    os.waitpid(pid, 0)
assert tree.own_children() == []
go.set()
thread.join()
"""


def test_own_children_are_those_of_all_threads(environ: dict[str, str]) -> None:
    """Also where the kernel doesn't list them."""
    subprocess.run([sys.executable, "-c", OWN], env=environ, check=True, timeout=500)


GRANDCHILD = """
import os, signal, time
os.setsid()
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print(os.getpid(), flush=True)
time.sleep(60)
"""
SUPERVISOR = """
import os, subprocess, sys
from musterpoint.core.processes import tree

assert tree.adopt_orphans()
start_and_leave = "import subprocess, sys; subprocess.Popen([sys.executable, sys.argv[1]])"
child = subprocess.Popen([sys.executable, "-c", start_and_leave, sys.argv[1]], stdout=subprocess.PIPE)
pid = int(child.stdout.readline())
child.wait()
assert tree.read_stat(pid).parent == os.getpid(), "the orphan was adopted"
assert tree.kill_below(os.getpid()) == 1
os.waitpid(pid, 0)
assert tree.descendants(os.getpid()) == []
"""


def test_kill_below_reaches_what_left_the_group_and_ignores_sigterm(tmp_path: Path, environ: dict[str, str]) -> None:
    grandchild = tmp_path / "grandchild.py"
    grandchild.write_text(GRANDCHILD)
    subprocess.run([sys.executable, "-c", SUPERVISOR, str(grandchild)], env=environ, check=True, timeout=500)


def test_pid_1_has_its_orphans_without_ctypes(environ: dict[str, str]) -> None:
    code = (
        "import sys; from musterpoint.core.processes import tree; print(tree.adopt_orphans(), 'ctypes' in sys.modules)"
    )
    as_pid_1 = f"import os; os.getpid = lambda: 1; {code}"
    for program, imported in ((code, True), (as_pid_1, False)):
        said = result_of([sys.executable, "-c", program], environ)
        assert (said.returncode, said.stdout.split()) == (0, ["True", str(imported)]), said.stderr


CHILD = """
import os, time
from musterpoint.core.processes import tree
parent, (read, write), (gone, held) = os.getpid(), os.pipe(), os.pipe()
pid = os.fork()
if pid == 0:
    os.close(held)
    if LATE:
        os.read(gone, 1)  # ends with the parent
    tree.die_with_parent(parent)
    os.write(write, b".")
    time.sleep(600)
if not LATE:
    os.read(read, 1)
print(pid, flush=True)
"""


@pytest.mark.parametrize("late", [False, True])
def test_die_with_parent(late: bool, environ: dict[str, str]) -> None:
    """``late``: the parent has ended before the child asks for it."""
    code = CHILD.replace("LATE", str(late))
    with subprocess.Popen([sys.executable, "-c", code], env=environ, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
    deadline = time.monotonic() + 500
    while (stat := tree.read_stat(pid)) is not None and stat.state != "Z" and time.monotonic() < deadline:
        time.sleep(0.01)
    assert stat is None or stat.state == "Z"


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
    tree.pass_on(process.pid, signal.SIGUSR1)
    process.communicate(timeout=500)
    assert process.returncode == 7


@pytest.mark.parametrize(
    ("script", "held"),
    [
        ("echo ready; sleep 600; true", True),
        ("sleep 600 & echo ready; wait", True),
        ("while read -r line; do echo $line; done < <(echo ready; exec sleep 600)", False),
        ("set -m; bash -c 'echo ready; sleep 600; true'; true", False),
    ],
)
def test_a_shell_that_reads_or_is_watched_is_not_stopped(script: str, held: bool) -> None:
    with subprocess.Popen(["bash", "-c", script], stdout=subprocess.PIPE, start_new_session=True) as process:
        assert process.stdout is not None
        process.stdout.readline()
        while not (programs := [stat for stat in tree.descendants(process.pid) if stat.comm == "sleep"]):
            time.sleep(0.01)
        (program,) = programs
        shell = process.pid if "set -m" not in script else program.parent
        assert tree.may_be_held(shell, [program.pid]) == held
        tree.kill_below(process.pid)
        process.kill()
