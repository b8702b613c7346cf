"""The ranks of a host: which are there, what gets a signal, and how they end, under an MPI too."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any, Iterator

import pytest

from musterpoint.base.failure import Failure
from musterpoint.core.code.program_files import LARGEST, CodeDirectory
from musterpoint.core.diagnosis.raised_facts import RaisedFacts
from musterpoint.core.diagnosis.traceback import Raised
from musterpoint.core.processes.control_socket import Connection
from musterpoint.core.processes.signal_once import SignalOnce
from musterpoint.core.supervise.events import Broken, LocalEvent, RankEnded
from musterpoint.core.supervise.events import Raised as RaisedEvent
from musterpoint.core.supervise.rank_ends import RaisedRanks, RankEnds
from musterpoint.core.supervise.rank_table import Rank, Ranks
from musterpoint.core.supervise.services_and_launchers import ServicesAndLaunchers

from ...turning import turn_until
from .bench import Piped, context_for

PATIENCE = 0.01
ABORT = b"Abort(5) on node 0 (rank 0 in comm 0): application called MPI_Abort(MPI_COMM_WORLD, 5) - process 0\n"


class Slot(Piped):
    """One expected rank with a stub of its own; the program is a process that sleeps."""

    def __init__(self, mpi: bool = True, prints_abort: bool = False) -> None:
        super().__init__()
        self.events: list[LocalEvent] = []
        self.records: list[str] = []
        self.oom = 0
        self.context = context_for(self.loop, self.pump, self.record, oom_kills=lambda: self.oom)
        once = SignalOnce(self.loop)
        self.ranks = Ranks(ServicesAndLaunchers(once), once)
        self.ends = RankEnds(self.context, self.ranks, once, self.events.append)
        self.raised = RaisedRanks(self.context, self.ranks, self.ends, self.events.append, PATIENCE)
        self.ranks.expect(1, 1)
        self.program = subprocess.Popen(["sleep", "600"])
        self.stdout, err = self.pump.open(0)
        assert err == self.stdout, "one pipe for both, as our own outputs are one"
        connection = Connection.__new__(Connection)
        self.rank = Rank(0, 0, connection, 1, mpi, prints_abort)
        self.ranks.up[0] = self.rank
        self.ranks.set_pid(self.rank, self.program.pid)
        self.ends.hidden.started(0, self.program.pid)

    def record(self, event: str, /, **facts: Any) -> None:
        self.records.append(event)

    def says(self, text: bytes) -> None:
        os.write(self.stdout, text)

    @property
    def failures(self) -> list[Failure]:
        """Those of ranks that have ended."""
        return [event.failure for event in self.events if isinstance(event, RankEnded) and event.failure]

    @property
    def end(self) -> tuple[int, str, str]:
        """Code, class and first line of the failure that the rank's end is; 0 where it has not ended or is none."""
        first = next(iter(self.failures), None)
        return (first.code, first.kind, first.reason.partition("\n")[0]) if first is not None else (0, "", "")

    def close(self) -> None:
        self.program.kill()
        self.program.wait()
        os.close(self.stdout)
        self.pump.drain(5)
        self.ends.close()
        super().close()


@pytest.fixture
def slot(request: pytest.FixtureRequest) -> Iterator[Slot]:
    """Of an MPI, unless a test says other options."""
    slot = Slot(**getattr(request, "param", {}))
    yield slot
    slot.close()


NO_MPI = pytest.mark.parametrize("slot", [{"mpi": False}], indirect=True, ids=["no-mpi"])
MPICH = pytest.mark.parametrize("slot", [{"prints_abort": True}], indirect=True, ids=["mpich"])
MPIS = pytest.mark.parametrize("slot", [{"prints_abort": True}, {"prints_abort": False}], indirect=True)
RAISED = b'Traceback (most recent call last):\n  File "a.py", line 1, in <module>\nValueError: boom\n'


@pytest.mark.parametrize(("text", "foreseen"), [("ValueError: x", 1), ("torch.distributed.ChildFailedError: ", 0)])
@NO_MPI
def test_a_launchers_own_exception_says_less_than_what_it_prints_next(slot: Slot, text: str, foreseen: int) -> None:
    slot.raised.heard(RaisedFacts(slot.program.pid, (Raised(text, ()),)))
    assert len(slot.events) == foreseen


@NO_MPI
def test_a_rank_that_has_raised_and_does_not_end_is_the_cause(slot: Slot) -> None:
    slot.raised.heard(RaisedFacts(slot.program.pid, (Raised("ValueError: scenario 7 infeasible", ()),)))
    turn_until(slot.loop, lambda: len(slot.events) > 1)
    foreseen, broken = slot.events
    assert isinstance(foreseen, RaisedEvent) and isinstance(broken, Broken)
    assert (broken.failure.code, broken.failure.rank) == (1, 0)
    assert broken.failure.reason.startswith("ValueError: scenario 7 infeasible\n")


@MPICH
def test_a_program_that_asked_for_the_end_and_goes_on_is_ended(slot: Slot) -> None:
    """MPICH and Intel MPI end the stub, which isn't the program that called."""
    slot.says(b"working\n" + ABORT + b"still working\n")
    slot.ends.lost_stub(slot.rank)
    assert slot.end == (5, "user", ABORT.decode().strip())
    assert slot.program.wait(500) == -9


@MPICH
@pytest.mark.parametrize("status", [0, 15, -11, 5])
def test_the_code_given_to_abort_counts_and_not_how_the_program_ended_then(slot: Slot, status: int) -> None:
    slot.rank.connection = None  # its stub is lost
    slot.says(ABORT + b"Abort(807528207): Fatal error in internal_Finalize: Other MPI error, error stack:\n")
    slot.ends.ended(slot.rank, status)
    assert slot.end[:2] == (5, "user")


@MPIS
@pytest.mark.parametrize("status", [0, 1, 7])
def test_a_program_that_only_prints_such_a_line_ends_as_its_stub_says(slot: Slot, status: int) -> None:
    slot.says(ABORT)
    slot.ends.ended(slot.rank, status)
    assert slot.end[0] == status


@MPICH
def test_the_users_own_words_lead(slot: Slot) -> None:
    slot.rank.connection = None  # its stub is lost
    slot.says(RAISED + ABORT)
    slot.ends.ended(slot.rank, 15)
    assert slot.end == (5, "user", "ValueError: boom")


@pytest.mark.parametrize(
    ("slot", "line", "status", "kind"),
    [
        ({}, b"working\n", 195, "peer"),  # the MPI ended its stub for another rank's sake
        ({}, b"", 7, "user"),  # Open MPI ended it first in the rank's own abort
        ({"prints_abort": True}, ABORT.replace(b"process 0", b"process 3"), 7, "peer"),
        ({}, ABORT, 7, "user"),
        ({"mpi": False}, ABORT, 14, "user"),
    ],
    indirect=["slot"],
)
def test_a_rank_outlives_its_stub_with_its_own_code(slot: Slot, line: bytes, status: int, kind: str) -> None:
    slot.says(line)
    slot.ends.lost_stub(slot.rank)
    assert (slot.program.poll(), slot.events) == (None, [])
    slot.ends.reaped(slot.program.pid, status)
    assert slot.end[:2] == (status, kind)


@pytest.mark.parametrize(("world", "kind", "ended"), [(2, "user", ()), (3, "peer", (1,))])
def test_a_rank_that_the_others_had_left(slot: Slot, world: int, kind: str, ended: tuple[int, ...]) -> None:
    """It is the program's own mistake; where ranks of other hosts may tell of a cause, their leader decides."""
    slot.ranks.expect(2, world)
    slot.ends.ended(Rank(1, 1), 0)
    slot.says(
        b'  File "a.py", line 1, in save\nRuntimeError: [gloo/transport/tcp/pair.cc] Connection closed by peer [::1]\n'
    )
    slot.rank.mpi = False
    slot.ends.ended(slot.rank, 1)
    failure = next(event.failure for event in slot.events if isinstance(event, RankEnded) and event.failure)
    assert (failure.kind, failure.ended) == (kind, ended)
    assert ("rank 1 had ended with 0; rank 0 was still " in failure.reason) == (kind == "user")


def test_open_mpi_5_ends_ranks_for_anothers_sake(slot: Slot) -> None:
    slot.ends.ended(slot.rank, 14)
    assert slot.end[:2] == (14, "peer")


def test_nothing_of_that_counts_in_a_stop(slot: Slot) -> None:
    slot.says(ABORT)
    assert slot.ends.signal(15, 500.0) == 1
    slot.ends.lost_stub(slot.rank)
    assert slot.program.wait(500) == -15
    slot.ends.reaped(slot.program.pid, -15)
    assert [(event.key, event.failure) for event in slot.events if isinstance(event, RankEnded)] == [(0, None)]


@pytest.mark.parametrize(("stopping", "said"), [(False, "ValueError: boom"), (True, None)])
def test_what_a_rank_had_printed_when_anothers_failure_met_it(slot: Slot, stopping: bool, said: str | None) -> None:
    slot.says(RAISED)
    slot.ends.signal(15, 500.0, stopping)
    assert slot.program.wait(500) == -15
    slot.ends.ended(slot.rank, -15)
    (event,) = [event for event in slot.events if isinstance(event, RankEnded)]
    assert event.failure is None
    assert (event.cut_short and event.cut_short.reason.partition("\n")[0]) == said


@pytest.mark.parametrize(("status", "code"), [(-9, 137), (1, 1)], ids=["the rank", "its child"])
def test_a_kernels_kill_is_known_by_its_count(slot: Slot, status: int, code: int) -> None:
    assert not slot.ends.oom_struck(status)
    slot.oom = 1
    assert slot.ends.oom_struck(status)
    assert not slot.ends.oom_struck(0)
    slot.says(b"RuntimeError: DataLoader worker (pid 9) is killed by signal: Killed.\n" if status == 1 else b"")
    slot.ends.ended(slot.rank, status)
    assert slot.end[:2] == (code, "oom")


def test_who_is_missing(slot: Slot) -> None:
    slot.ranks.expect(2, 2)
    assert [slot.ranks.is_missing(key) for key in range(3)] == [False, True, False]
    assert [*slot.ranks.up.values()] == [slot.rank]
    slot.ranks.expected.discard(1)
    assert not slot.ranks.is_missing(1)


STUBBORN = (
    "import signal, time\nsignal.signal(15, lambda *_: None)\nprint('up', flush=True)\nwhile True: time.sleep(600)"
)


@NO_MPI
@pytest.mark.parametrize("stopping", [True, False])
@pytest.mark.parametrize("killed_first", [True, False])
def test_what_is_left_behind_has_its_time_until_all_is_killed(slot: Slot, killed_first: bool, stopping: bool) -> None:
    """A launcher may die of the stop while everything is being killed, and its rank become ours after that."""
    with subprocess.Popen([sys.executable, "-S", "-c", STUBBORN], stdout=subprocess.PIPE) as rank:
        try:
            assert rank.stdout is not None and rank.stdout.readline() == b"up\n"
            slot.ends.signal(15, 500.0, stopping=stopping)
            if killed_first:
                slot.ends.being_killed()
            slot.ends.ended(slot.rank, -15)
            if not killed_first:
                assert slot.events == []
                slot.ends.being_killed()
            assert [type(event) for event in slot.events] == [RankEnded]
            assert rank.poll() is None
        finally:
            rank.kill()


@NO_MPI
@pytest.mark.parametrize(("signo", "status", "quiet"), [(15, 15, True), (10, 10, True), (10, 15, False), (15, 7, 0)])
def test_a_handler_that_ends_with_the_signals_number_is_no_failure(
    slot: Slot, signo: int, status: int, quiet: bool
) -> None:
    """``sys.exit(signum)``, as in the handler that ``ray.init()`` installs."""
    slot.ends.signal(signo, 500.0)
    slot.program.wait()
    slot.ends.ended(slot.rank, status)
    (ended,) = [event for event in slot.events if isinstance(event, RankEnded)]
    assert (ended.failure is None) == quiet


def test_a_file_is_read_by_either_name(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_bytes(b"x = '\xff'\n")
    files = CodeDirectory(str(tmp_path))
    assert files.read("train.py") == files.read(str(tmp_path / "train.py")) == "x = '\ufffd'\n"


def test_what_is_no_such_file_has_no_text(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo.py")
    (tmp_path / "large.py").write_bytes(b"#" * (LARGEST + 1))
    (tmp_path / "empty.py").touch()
    files = CodeDirectory(str(tmp_path))
    assert [files.read(name) for name in ("fifo.py", "large.py", "empty.py", ".", "gone.py", "a\0b")] == [None] * 6


def test_the_programs_are_the_python_files_of_the_directory(tmp_path: Path) -> None:
    for name in ("b.py", "a.py", "notes.txt"):
        (tmp_path / name).write_text(name)
    assert list(CodeDirectory(str(tmp_path)).programs()) == ["a.py", "b.py"]
    assert list(CodeDirectory(str(tmp_path / "gone")).programs()) == list(CodeDirectory("").programs()) == []


def test_a_link_is_known_by_both_names(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path)
    assert CodeDirectory(str(tmp_path / "link")).directories == (str(tmp_path / "link"), str(tmp_path))
    assert CodeDirectory("").directories == ()
