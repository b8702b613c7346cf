"""Processes found, signalled and killed, orphans among them; the facts come from real processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from musterpoint.core.processes import process_tree

from ...running import result_of


def write_proc(root: Path, rows: list[tuple[int, str, str, int]]) -> str:
    """A /proc of ``(pid, comm, state, parent)``."""
    for pid, comm, state, parent in rows:
        (root / str(pid)).mkdir()
        (root / str(pid) / "stat").write_text(f"{pid} ({comm}) {state} {parent} 1 1 0")
    return str(root)


def test_descendants_leave_zombies_out(tmp_path: Path) -> None:
    proc = write_proc(tmp_path, [
        (10, "python", "S", 1), (11, "a) (b", "S", 10), (12, "gone", "Z", 10), (13, "deep", "R", 12),
        (14, "other", "S", 1),
    ])  # fmt: skip
    assert sorted(stat.pid for stat in process_tree.descendants(10, proc)) == [11, 13]
    several = process_tree.descendants_of([10, 12, 14], proc)
    assert {root: sorted(stat.pid for stat in below) for root, below in several.items()} == {
        10: [11, 13], 12: [13], 14: [],
    }  # fmt: skip


def test_a_zombie_tells_how_it_ended() -> None:
    with subprocess.Popen([sys.executable, "-c", "raise SystemExit(7)"]) as child:
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        stat = process_tree.read_stat(child.pid)
        assert stat is not None and (stat.state, os.waitstatus_to_exitcode(stat.status)) == ("Z", 7)


def test_catches_reads_a_real_process() -> None:
    code = "import signal, sys; signal.signal(signal.SIGTERM, lambda *_: None); print(1, flush=True); sys.stdin.read()"
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        child.stdout.readline()
        assert process_tree.catches(child.pid, signal.SIGTERM)
        assert not process_tree.catches(child.pid, signal.SIGUSR2)
        child.communicate()


OWN = """
import os, sys, threading
from pathlib import Path
from musterpoint.core.processes import process_tree

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
asked = sorted(stat.pid for stat in process_tree.own_children())
process_tree.open = lambda path, mode: open(path + ".no" if path.endswith("children") else path, mode)
read = sorted(stat.pid for stat in process_tree.own_children())
assert asked == read == sorted(pids), (asked, read, pids)
os.write(held, b"..")
for pid in pids:
    os.waitpid(pid, 0)
assert process_tree.own_children() == []
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
from musterpoint.core.processes import process_tree

assert process_tree.adopt_orphans()
start_and_leave = "import subprocess, sys; subprocess.Popen([sys.executable, sys.argv[1]])"
child = subprocess.Popen([sys.executable, "-c", start_and_leave, sys.argv[1]], stdout=subprocess.PIPE)
pid = int(child.stdout.readline())
child.wait()
assert process_tree.read_stat(pid).parent == os.getpid(), "the orphan was adopted"
assert process_tree.kill_below(os.getpid()) == 1
os.waitpid(pid, 0)
assert process_tree.descendants(os.getpid()) == []
"""


def test_kill_below_reaches_what_left_the_group_and_ignores_sigterm(tmp_path: Path, environ: dict[str, str]) -> None:
    grandchild = tmp_path / "grandchild.py"
    grandchild.write_text(GRANDCHILD)
    subprocess.run([sys.executable, "-c", SUPERVISOR, str(grandchild)], env=environ, check=True, timeout=500)


def test_pid_1_has_its_orphans_without_ctypes(environ: dict[str, str]) -> None:
    asked = "print(process_tree.adopt_orphans(), 'ctypes' in sys.modules)"
    code = f"import sys; from musterpoint.core.processes import process_tree; {asked}"
    as_pid_1 = f"import os; os.getpid = lambda: 1; {code}"
    for program, imported in ((code, True), (as_pid_1, False)):
        said = result_of([sys.executable, "-c", program], environ)
        assert (said.returncode, said.stdout.split()) == (0, ["True", str(imported)]), said.stderr


CHILD = """
import os, time
from musterpoint.core.processes import process_tree
parent, (read, write), (gone, held) = os.getpid(), os.pipe(), os.pipe()
pid = os.fork()
if pid == 0:
    os.close(held)
    if LATE:
        os.read(gone, 1)  # ends with the parent
    process_tree.die_with_parent(parent)
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
    while (stat := process_tree.read_stat(pid)) is not None and stat.state != "Z" and time.monotonic() < deadline:
        time.sleep(0.01)
    assert stat is None or stat.state == "Z"
