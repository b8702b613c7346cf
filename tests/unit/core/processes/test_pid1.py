"""Which programs as PID 1 drop SIGTERM, which of them are ours to watch, and what the watch makes of its tracer."""

from __future__ import annotations

import errno
import os
import sys
from pathlib import Path
from typing import Callable, Mapping, Sequence

import pytest

from musterpoint.base.settings import LOCAL
from musterpoint.core.processes import pid1
from musterpoint.core.processes.pid1 import pid1_note, refusal, refused_note, tracer_of_pid1, unstoppable_pid1
from musterpoint.core.processes.process import CannotStart
from musterpoint.core.supervise.watchers import pid1_watch
from musterpoint.core.supervise.watchers.pid1_watch import Pid1Watch

NOTHING = "0000000000000000"
TERM = "0000000000004000"
OWN = 7
CONTAINERS = "pid:[4026532301]"
MACHINES = "pid:[4026531836]"


class Proc:
    """A ``/proc`` as it was seen: PID 1's status, and our ancestors, nearest first."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.ancestors(5, 1)
        (folder / str(OWN) / "ns").mkdir()
        (folder / "self").symlink_to(str(OWN))
        self.namespace(CONTAINERS)

    def ancestors(self, *pids: int) -> None:
        for pid, parent in zip((OWN, *pids), (*pids, 0)):
            (self.folder / str(pid)).mkdir(exist_ok=True)
            (self.folder / str(pid) / "stat").write_text(f"{pid} (a (b) c) S {parent} {pid} {pid} 0 -1\n")

    def namespace(self, name: str) -> None:
        link = self.folder / str(OWN) / "ns" / "pid"
        link.unlink(missing_ok=True)
        os.symlink(name, link)

    def status(self, name: str, caught: str, blocked: str = NOTHING, ignored: str = NOTHING, tracer: int = 0) -> None:
        (self.folder / "1").mkdir(exist_ok=True)
        (self.folder / "1" / "status").write_text(
            f"Name:\t{name}\nPid:\t1\nTracerPid:\t{tracer}\nSigPnd:\t{NOTHING}\nSigBlk:\t{blocked}\n"
            f"SigIgn:\t{ignored}\nSigCgt:\t{caught}\n"
        )

    def deaf(self) -> str:
        return unstoppable_pid1(str(self.folder), OWN)


@pytest.fixture
def proc(tmp_path: Path) -> Proc:
    return Proc(tmp_path)


@pytest.mark.parametrize(
    ("name", "caught", "blocked", "ignored", "deaf"),
    [
        ("sh", NOTHING, NOTHING, NOTHING, True),
        ("bash", "0000000000010002", NOTHING, "0000000000000004", True),
        ("bash", NOTHING, NOTHING, "0000000000384004", True),  # an interactive one ignores it
        ("python3.11", "0000000000000002", NOTHING, "0000000001001000", True),
        ("node", "0000000188000000", NOTHING, "0000000000001000", True),
        ("bash", TERM, NOTHING, NOTHING, False),
        ("tini", NOTHING, "fffffffe7ffbfeff", "0000000000384000", False),
        ("docker-init", NOTHING, "fffffffe7ffbfeff", "0000000000384000", False),
        ("dumb-init", "7fefc1fe280149fb", "fffffffe3bfa3aff", NOTHING, False),
        ("systemd", "7fefc1fe28014a03", NOTHING, NOTHING, False),
        ("catatonit", NOTHING, "fffffffe7bfbfaff", NOTHING, False),
    ],
)
def test_what_it_catches_and_blocks_decides(
    proc: Proc, name: str, caught: str, blocked: str, ignored: str, deaf: bool
) -> None:
    proc.status(name, caught, blocked, ignored)
    assert proc.deaf() == (name if deaf else "")


def test_an_init_that_waits_for_signals_passes_them_on(proc: Proc) -> None:
    """While tini waits, its status shows none of them as blocked."""
    proc.status("tini", NOTHING, NOTHING, "0000000000300000")
    assert proc.deaf() == "tini"
    (proc.folder / "1" / "wchan").write_text("do_sigtimedwait.isra.0")
    assert proc.deaf() == ""
    (proc.folder / "1" / "wchan").write_text("do_wait")
    assert proc.deaf() == "tini"


def test_a_shell_that_forks_at_that_moment_drops_it_all_the_same(proc: Proc, monkeypatch: pytest.MonkeyPatch) -> None:
    """It blocks SIGTERM then, awake; an init that blocks it does so asleep, too."""
    deaf = {"Name": "bash", "SigCgt": NOTHING}
    looks = [("R", TERM), ("D", TERM), ("S", NOTHING), ("S", NOTHING)]
    seen = iter([{**deaf, "State": state, "SigBlk": blocked} for state, blocked in looks])
    monkeypatch.setattr(pid1.process_tree, "read_status", lambda pid, folder: next(seen))
    assert proc.deaf() == "bash"
    seen = iter([{**deaf, "State": state, "SigBlk": TERM} for state in "RSRSS"])
    assert proc.deaf() == ""


def test_the_machines_own_init_is_left_alone(proc: Proc) -> None:
    proc.status("init", "00000000000004e8")
    assert proc.deaf() == "init"
    proc.namespace(MACHINES)
    assert proc.deaf() == ""


def test_it_must_be_an_ancestor(proc: Proc) -> None:
    """A program started with ``docker exec`` isn't below PID 1, and is stopped by whoever started it."""
    proc.status("sleep", NOTHING)
    proc.ancestors(5)
    assert proc.deaf() == ""
    proc.ancestors(5, 4, 3, 1)
    assert proc.deaf() == "sleep"


def test_us_and_another_namespaces_processes(proc: Proc) -> None:
    proc.status("bash", NOTHING)
    assert unstoppable_pid1(str(proc.folder), 1) == ""
    assert unstoppable_pid1(str(proc.folder), 8) == "", "this /proc shows other processes than ours"


@pytest.mark.parametrize("text", ["", "Name:\tbash\n", "Name:\tbash\nSigBlk:\tx\nSigCgt:\ty\n"])
def test_what_cannot_be_read_is_left_alone(proc: Proc, text: str) -> None:
    assert proc.deaf() == ""
    (proc.folder / "1" / "status").write_text(text)
    assert proc.deaf() == ""


def test_why_it_was_refused(proc: Proc) -> None:
    folder = str(proc.folder)
    proc.status("bash", NOTHING, tracer=12)
    assert tracer_of_pid1(folder) == 12
    assert tracer_of_pid1(str(proc.folder / "nowhere")) == 0
    assert "exec" in pid1_note("bash", "off") and "EPERM" in refused_note("sh", "EPERM")
    proc.status("bash", NOTHING)
    assert refusal(errno.EPERM, folder) == "ptrace: Operation not permitted"
    scope = proc.folder / "sys" / "kernel" / "yama" / "ptrace_scope"
    scope.parent.mkdir(parents=True)
    for level, words in (("0", ""), ("1", ", kernel.yama.ptrace_scope is 1")):
        scope.write_text(f"{level}\n")
        assert refusal(errno.EPERM, folder) == "ptrace: Operation not permitted" + words
    proc.status("bash", NOTHING, tracer=12)
    assert refusal(errno.EPERM, folder) == "process 12 traces it already"


WATCHED = "PID 1 of this container is bash, which keeps SIGTERM to itself: it is watched"


class FakeSidecars:
    """Remembers what it was to start, in place of the real ones; or refuses to."""

    def __init__(self, refusal: Exception | None = None) -> None:
        self.refusal = refusal

    def start(
        self, argv: Sequence[str], environ: Mapping[str, str], line: Callable[[str], None], ended: Callable[[int], None]
    ) -> None:
        if self.refusal is not None:
            raise self.refusal
        self.argv, self.line, self.ended = list(argv), line, ended
        self.text = Path(argv[3]).read_text()


class Watched:
    def __init__(self, sidecars: FakeSidecars, **environ: str) -> None:
        self.sidecars = sidecars
        self.said: list[str] = []
        self.stops = 0
        self.watch = Pid1Watch(sidecars, environ, "bash", self.said.append, self.stop)  # type: ignore[arg-type]

    def stop(self) -> None:
        self.stops += 1


def test_the_watch_reports_one_stop() -> None:
    watched = Watched(FakeSidecars())
    tracer = watched.sidecars
    assert tracer.argv[:3] == [sys.executable, "-I", "-S"] and tracer.argv[4] == "1"
    assert "PTRACE_SEIZE" in tracer.text
    tracer.line("watching")
    assert len(watched.said) == 1 and watched.said[0].startswith(WATCHED)
    tracer.line("TERM")
    tracer.line("TERM")
    tracer.ended(0)
    watched.watch.close()
    assert (watched.stops, len(watched.said)) == (1, 1)
    assert not Path(tracer.argv[3]).exists()


@pytest.mark.parametrize(
    ("tracer", "local", "words"),
    [
        (0, "", "it can't be watched (ptrace: Operation not permitted): a stop will kill the job"),
        (77, "", "it can't be watched (process 77 traces it already)"),
        (77, "1", ""),
        (0, "1", "Operation not permitted"),
    ],
)
def test_a_refusal_is_reported_once(monkeypatch: pytest.MonkeyPatch, tracer: int, local: str, words: str) -> None:
    """Hosts of this machine's own jobs share PID 1: one of them traces it, and stops all."""
    for module in (pid1, pid1_watch):
        monkeypatch.setattr(module, "tracer_of_pid1", lambda proc="/proc": tracer)
    watched = Watched(FakeSidecars(), **{LOCAL: local})
    watched.sidecars.line("refused 1")
    watched.sidecars.ended(0)
    assert len(watched.said) == bool(words)
    assert all(words in line for line in watched.said)


def test_a_tracer_that_ends_by_itself() -> None:
    watched = Watched(FakeSidecars())
    watched.sidecars.line("ModuleNotFoundError: No module named '_ctypes'")
    watched.sidecars.ended(1)
    assert "(what watched it has ended with 1: ModuleNotFoundError: No module named '_ctypes')" in watched.said[0]


def test_a_tracer_that_ends_when_the_watch_is_closed() -> None:
    watched = Watched(FakeSidecars())
    watched.sidecars.line("watching")
    watched.watch.close()
    watched.sidecars.ended(-9)
    assert len(watched.said) == 1


@pytest.mark.parametrize("refusal", [OSError(24, "Too many open files"), CannotStart(OSError(2, "none"), "exec")])
def test_a_tracer_that_cannot_be_started(refusal: Exception) -> None:
    watched = Watched(FakeSidecars(refusal))
    assert f"it can't be watched ({refusal})" in watched.said[0]
