"""The ranks of this host: which are expected, which are there, how they are told to end, and how they ended."""

from __future__ import annotations

import signal
import time
from typing import Callable, Iterable

from musterpoint.failure import Failure
from musterpoint.loop import Loop
from musterpoint.processes import tree
from musterpoint.processes.control_socket import Connection
from musterpoint.processes.pump import Pump
from musterpoint.supervise.events import Key, LocalEvent, RankEnded
from musterpoint.supervise.outcome import Explainer, RankEnd
from musterpoint.supervise.unranked import UnrankedProcesses

QUIET_STATUSES = frozenset({-int(signal.SIGTERM), -9, 143, 137, 0})
"""Statuses of a rank that was told to end and did, beside those of the signal it was told by: no failures."""


ABORTED = b"Abort("
"""In what an MPI prints when one of its programs calls ``MPI_Abort``."""


class Ranks:
    """``emit`` gets a :class:`RankEnded` for every rank that was expected; ``unranked`` are what runs beside them.

    ``oom_kills`` counts the kernel's OOM kills in this container; ``spared`` are children that aren't the job's.
    """

    def __init__(
        self, loop: Loop, pump: Pump, unranked: UnrankedProcesses, emit: Callable[[LocalEvent], None],
        explain: Callable[[], Explainer], record: Callable[..., None], oom_kills: Callable[[], int],
        spared: Callable[[], set[int]] = set,
    ) -> None:  # fmt: skip
        self._pump, self._unranked, self._emit, self._spared = pump, unranked, emit, spared
        self._explain, self._record, self._oom_kills = explain, record, oom_kills
        self._oom_before = oom_kills()
        self._expected: set[Key] = set()
        self._ranks: dict[Key, Rank] = {}
        self._by_pid: dict[int, Rank] = {}
        self._told: set[Key] = set()
        self._told_by = 0
        self._patient = False
        self._orphans = tree.Orphans(loop, self._end_held_back)
        self._held_back: RankEnded | None = None
        self._last: RankEnd | None = None
        self.ends: list[RankEnd] = []
        self.reported: Failure | None = None
        """What a launcher of ours, run as the program of a rank, said before it ended."""

    def oom_struck(self, status: int | None) -> bool:
        """Whether the kernel killed a process for its memory before one that nobody told to end did so in error."""
        return status != 0 and self._oom_kills() > self._oom_before

    # -- who is here --

    def expect(self, keys: Iterable[Key]) -> None:
        self._expected.update(keys)

    def forget(self, key: Key) -> None:
        """It could not be started, and somebody else says so."""
        self._expected.discard(key)

    def is_missing(self, key: Key) -> bool:
        """Whether this rank is expected and hasn't come up."""
        return key in self._expected and key not in self._ranks

    def add(self, rank: Rank) -> None:
        self._ranks[rank.key] = rank
        if rank.pid:
            self._by_pid[rank.pid] = rank

    def has_pid(self, member: Rank, pid: int) -> None:
        """Its stub has started the program."""
        member.pid = pid
        self._by_pid[pid] = member

    def came_up(self, session: int) -> int:
        """How many ranks of a session there were so far."""
        return sum(1 for key in self._ranks if key[0] == session)

    def of(self, session: int) -> list[Rank]:
        return [member for member in self._ranks.values() if member.key[0] == session]

    # -- ends --

    def reaped(self, pid: int, code: int) -> None:
        """A child of ours ended; it may be a rank, or what became of one whose stub is gone."""
        member = self._by_pid.get(pid)
        if member is None:
            return
        if member.connection is None:
            self.ended(member, code)
        else:
            member.orphan_status = code  # its stub was killed; that is about to be noticed

    def running(self, number: int) -> bool:
        """Whether ranks of a session haven't ended here."""
        return any(key[0] == number for key in self._expected)

    def is_expected(self, member: Rank) -> bool:
        return member.key in self._expected

    def lost_stub(self, member: Rank) -> None:
        """A stub that was killed leaves its program to us: it is our child now and is reaped like one."""
        if member.key not in self._expected:
            return
        member.connection = None
        self._record("stub-lost", rank=member.rank)
        if not member.pid or not tree.send(member.pid, 0):
            self.ended(member, member.orphan_status)
        elif member.key not in self._told and self._aborted(member) is not None:
            # it asked its MPI to end everything, and goes on because the MPI killed the stub in its place
            tree.send(member.pid, signal.SIGKILL)
            self.ended(member, None)

    def _aborted(self, member: Rank) -> int | None:
        """The code with which a rank asked its MPI to end the job; None if it didn't."""
        if not member.mpi:
            return None
        for tail in (self._pump.tail(member.rank, member.name), self._pump.stdout_tail(member.rank, member.name)):
            if ABORTED in tail and (code := self._explain().abort_code(tail)) is not None:
                return code
        return None

    def ended(self, member: Rank, status: int | None) -> None:
        """``status`` counts for less than the code that a rank gave to ``MPI_Abort``: MPICH's ends with any."""
        if member.key not in self._expected:
            return
        self._expected.discard(member.key)
        if member.pid:
            self._by_pid.pop(member.pid, None)
        told = member.key in self._told
        aborted = None if told else self._aborted(member)
        if aborted is not None:
            status = aborted
        told_late = told and self._patient
        end = RankEnd(
            rank=member.rank, local_rank=member.local_rank, pid=member.pid, status=status, at=time.time(),
            ended_by_us=told, oom=not told and self.oom_struck(status),
            tail=self._pump.tail(member.rank, member.name) if status or told_late else b"",
            stdout_tail=self._pump.stdout_tail(member.rank, member.name) if status or told_late else b"",
            mpi=member.mpi, given_up=member.mpi and member.connection is None and aborted is None,
        )  # fmt: skip
        self.ends.append(end)
        self._record("rank-ended", rank=end.rank, status=status, told=told, oom=end.oom)
        quiet = QUIET_STATUSES | {-self._told_by, 128 + self._told_by}
        failed = status != 0 and not (told and status in quiet)
        if failed and not told:
            self._pump.show(member.rank, member.name)
        self._held_back = RankEnded(member.key, self._failure_of(member.key[0], end) if failed else None)
        self._last = None
        self._end_held_back()

    def _failure_of(self, session: int, end: RankEnd) -> Failure:
        """What a launcher in a rank of the job's own plan reported, where the rank ended as it did; else its error."""
        failure = self._explain().rank(end)
        own = None if session else self.reported
        return own if own is not None and own.code == failure.code else failure

    def settle(self) -> None:
        """Something ended: the last rank's end may have waited for it."""
        self._end_held_back()

    def _end_held_back(self) -> None:
        """Emits a rank's end; the last one's after a stop not before what dead launchers left behind has ended, too."""
        if self._held_back is None:
            return
        if self._patient and not self._expected and self._orphans.signal(self._known(), self._told_by):
            self._last = self.ends[-1]
            return
        event, self._held_back = self._held_back, None
        if self._last is not None and event.failure is None:
            event = event._replace(failure=self._failure_of_what_was_left(self._last, self._ranks[event.key].name))
        self._emit(event)

    def _failure_of_what_was_left(self, end: RankEnd, name: str) -> Failure | None:
        """What a rank that died of the stop left behind, and what it wrote since, if that tells of a failure."""
        since = self._pump.tail(end.rank, name).removeprefix(end.tail)
        since_out = self._pump.stdout_tail(end.rank, name).removeprefix(end.stdout_tail)
        return self._explain().orphans(end._replace(status=1, tail=since, stdout_tail=since_out))

    def _known(self) -> set[int]:
        """Children of ours that nobody left behind."""
        return {
            *self._by_pid,
            *self._unranked.pids,
            *self._spared(),
            *(member.stub for member in self._ranks.values()),
        }

    # -- stopping --

    def tell(self, signo: int, patient: bool = False) -> int:
        """Sends ``signo`` to every live rank, once; ranks that never came up are given up. How many were told."""
        self._told_by, self._patient = signo, patient
        for key in sorted(self._expected - self._told):
            self._told.add(key)
            if key in self._ranks:
                self._ranks[key].send(signo)
        for key in sorted(self._expected):
            member = self._ranks.get(key)
            if member is None or not member.pid:
                self._give_up(key, member)
        return len(self._told)

    def _give_up(self, key: Key, member: Rank | None) -> None:
        """A rank that its launcher hasn't brought up yet: the launcher goes, and the rank with it."""
        if member is not None and member.connection is not None:
            member.connection.close()
        if not any(other.pid for other in self.of(key[0])):
            self._unranked.kill(key[0], "launcher")
        self._expected.discard(key)
        self._emit(RankEnded(key, None))

    def pass_on(self, signo: int) -> None:
        """Sends a signal that means something to the user's program only."""
        for key in self._expected:
            if key in self._ranks:
                self._ranks[key].send(signo)

    def all_told(self) -> None:
        """Everything is being killed: no end from now on is a failure, and nothing left behind gets its time."""
        self._told.update(self._expected)
        self._patient = False
        self._end_held_back()

    def dismiss(self) -> None:
        """Ends the stubs: their programs have ended."""
        for member in self._ranks.values():
            if member.connection is not None:
                member.connection.close()

    def close(self) -> None:
        self._orphans.close()


class Rank:
    """``pid`` is 0 until the program runs; ``connection`` is its stub's connection, ``stub`` the pid.

    ``name`` tells its output from that of ranks of the same number in other sessions. ``orphan_status`` is how it ended
    if it was reaped as our own child because its stub is gone. ``mpi`` says that an MPI started it.
    """

    __slots__ = ("key", "local_rank", "mpi", "name", "orphan_status", "pid", "rank", "stub", "connection")

    def __init__(
        self, key: Key, rank: int, local_rank: int, name: str, pid: int,
        connection: Connection | None = None, stub: int = 0,
        mpi: bool = False,
    ) -> None:  # fmt: skip
        self.key, self.rank, self.local_rank, self.name = key, rank, local_rank, name
        self.pid, self.connection, self.stub, self.mpi = pid, connection, stub, mpi
        self.orphan_status: int | None = None

    def send(self, signo: int) -> None:
        """Sends ``signo`` to the program, past the shells in front of it."""
        if self.pid:
            for pid in tree.stop_targets(self.pid, signo):
                tree.send(pid, signo)
