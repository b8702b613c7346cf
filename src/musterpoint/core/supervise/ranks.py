"""The ranks of this host: which are expected, which run, how they are signalled, and how they ended."""

from __future__ import annotations

import signal
import time
from typing import TYPE_CHECKING, Callable, Sequence

from musterpoint.base.failure import MOST_ENDED, Failure, after_others
from musterpoint.base.records import NamedTuple
from musterpoint.core.diagnosis.facts import RankEnd
from musterpoint.core.processes import tree
from musterpoint.core.processes.control_socket import Connection, ask_raised
from musterpoint.core.processes.pump import Pump
from musterpoint.core.processes.rest_of_output import LONGEST, RestOfOutput
from musterpoint.core.processes.signal_once import SignalOnce, pass_on
from musterpoint.core.supervise.context import SupervisorContext
from musterpoint.core.supervise.events import Key, LocalEvent, Raised, RankEnded
from musterpoint.core.supervise.hidden_work import HiddenWork, end_since
from musterpoint.core.supervise.services_and_launchers import ServicesAndLaunchers

if TYPE_CHECKING:
    from musterpoint.core.diagnosis.raised_facts import RaisedFacts

QUIET_STATUSES = frozenset({-int(signal.SIGTERM), -9, 143, 137, 0})
"""Statuses that are no failure after a rank was signalled, beside that signal's own (and ``sys.exit(signum)``)."""
TO_TELL = 0.3
"""Seconds of its grace that a rank's output leaves for telling its end."""
ABORTED = b"Abort("
"""Printed by an MPI when a program calls ``MPI_Abort``."""


class LaunchesOf:
    """Launches of ours in one rank: how they ended, and the bytes that it had ``written`` when the last one did.

    ``running``: the pids of those that run; ``owed``: the signal that the rank gets when they have ended.
    """

    __slots__ = ("ended", "owed", "running", "written")

    def __init__(self) -> None:
        self.ended: list[Failure | None] = []
        self.running: set[int] = set()
        self.written, self.owed = (0, 0), 0


class Rank:
    """``key`` is the local rank, ``number`` the global one. ``pid`` is 0 until the program runs. ``connection`` is its
    stub's, ``stub`` the stub's pid.

    ``orphan_status``: its status if we reaped it because its stub is gone. ``mpi``: an MPI started it, which
    ``prints_abort`` when the program calls ``MPI_Abort``. ``raised``: the exception that ends it, as it told us itself;
    ``below``: one of a Python that a shell in its place runs; ``foreseen``: the failure that this will be.
    """

    __slots__ = (
        "below",
        "connection",
        "foreseen",
        "key",
        "launches",
        "mpi",
        "number",
        "orphan_status",
        "pid",
        "prints_abort",
        "raised",
        "stub",
    )

    def __init__(
        self,
        key: Key,
        number: int,
        connection: Connection | None = None,
        stub: int = 0,
        mpi: bool = False,
        prints_abort: bool = False,
    ) -> None:
        self.key, self.number = key, number
        self.pid, self.connection, self.stub, self.mpi = 0, connection, stub, mpi
        self.prints_abort = prints_abort
        self.raised: RaisedFacts | None = None
        self.below: RaisedFacts | None = None
        self.foreseen: Failure | None = None
        self.orphan_status: int | None = None
        self.launches = LaunchesOf()

    @property
    def still_below(self) -> RaisedFacts | None:
        """``below``, if that Python still runs."""
        return self.below if self.below is not None and tree.read_stat(self.below.pid) is not None else None


def written(rank: Rank, pump: Pump) -> tuple[int, int]:
    """The bytes that a rank has written to stderr and, where separate, to stdout."""
    pump.still_open(rank.number)  # reads what has come by now
    totals = [stream.tail.total for stream in pump.streams_of(rank.number)]
    return (totals[-1], totals[0]) if len(totals) > 1 else (sum(totals), 0)


class EndedRank(NamedTuple):
    """A rank whose end isn't told yet: its output is read first.

    ``end`` has the facts, and what it had printed by then; None where they aren't needed. ``failed``: it is a failure.
    ``before``: the ranks of this host that had ended with 0.
    """

    rank: Rank
    end: RankEnd | None
    failed: bool
    before: frozenset[int]
    rest: RestOfOutput


class Ranks:
    """The table of this host's ranks. ``emit`` gets a :class:`RankEnded` for every expected rank.

    ``others``: the services and launchers of this host. ``once`` signals programs, and what those leave behind.
    """

    def __init__(
        self,
        context: SupervisorContext,
        others: ServicesAndLaunchers,
        once: SignalOnce,
        emit: Callable[[LocalEvent], None],
    ) -> None:
        self._context, self._pump, self._others, self._emit = context, context.pump, others, emit
        self._oom_before = context.oom_kills()
        self._expected: set[Key] = set()
        self._world = 1
        self._ended_well: set[int] = set()
        self._cut_off = False
        self._ranks: dict[Key, Rank] = {}
        self._by_pid: dict[int, Rank] = {}
        self._signalled: set[Key] = set()
        self._signal = 0
        self._wait_for_orphans = self._stopping = False
        self._once = once
        once.on_end = self.settle
        self._ended: list[EndedRank] = []  # in the order in which they ended
        self._told_to_end_by: float | None = None
        self._last_end = 0.0
        self._orphans_had_time = False
        self.hidden = HiddenWork(context)

    def oom_struck(self, status: int | None) -> bool:
        """Whether ``status`` is an error, and the kernel has OOM-killed a process since the start."""
        return status != 0 and self._context.oom_kills() > self._oom_before

    # -- which ranks exist --

    def expect(self, keys: Sequence[Key], world: int = 1) -> None:
        """Ranks with these keys, of ``world`` ranks, will come up."""
        self._expected.update(keys)
        self._world = world

    def forget(self, key: Key) -> None:
        """It could not be started; the caller emits its end."""
        self._expected.discard(key)

    def is_missing(self, key: Key) -> bool:
        """Whether this rank is expected and hasn't come up."""
        return key in self._expected and key not in self._ranks

    @property
    def unstarted(self) -> list[Key]:
        """The ranks whose program doesn't run yet, whoever is to start it."""
        ranks = self._ranks
        return sorted(key for key in self._expected if not (key in ranks and ranks[key].pid))

    def is_expected(self, rank: Rank) -> bool:
        return rank.key in self._expected

    def add(self, rank: Rank) -> None:
        self._ranks[rank.key] = rank

    def set_pid(self, rank: Rank, pid: int) -> None:
        """The program was started, by us or by its stub."""
        rank.pid = pid
        self._by_pid[pid] = rank
        self.hidden.started(rank.number, pid)

    @property
    def live(self) -> dict[int, int]:
        """The pids of ranks that run, by global rank."""
        running = [rank for rank in self._ranks.values() if rank.pid and rank.key in self._expected]
        return {rank.number: rank.pid for rank in sorted(running, key=lambda rank: rank.key)}

    def local_rank(self, number: int) -> int | None:
        """The local rank of the rank with this global number; None where there is none."""
        rank = self._of_number(number)
        return None if rank is None else rank.key

    def _of_number(self, number: int) -> Rank | None:
        return next((rank for rank in self._ranks.values() if rank.number == number), None)

    def above(self, pid: int) -> Rank | None:
        """The rank in whose program the process ``pid`` runs, or that it is."""
        while pid > 1 and pid not in self._by_pid:
            stat = tree.read_stat(pid)
            pid = stat.parent if stat is not None else 0
        return self._by_pid.get(pid)

    @property
    def are_running(self) -> bool:
        """There are ranks that haven't ended here."""
        return bool(self._expected)

    @property
    def are_untold(self) -> bool:
        """There are ranks whose end isn't told yet."""
        return bool(self._expected or self._ended)

    @property
    def come_up(self) -> dict[Key, Rank]:
        """The ranks that have come up so far."""
        return self._ranks

    @property
    def cut_off(self) -> bool:
        """Whether a rank of this host has not ended with 0, also one that was told to end: it may have been saving."""
        return self._cut_off or bool(self._expected)

    def pids(self) -> list[int]:
        """The pids of the programs that run."""
        return [*self._by_pid]

    @property
    def stubs(self) -> set[int]:
        """The pids of stubs that foreign launchers have started."""
        return {rank.stub for rank in self._ranks.values() if rank.stub}

    # -- how they end --

    def reaped(self, pid: int, status: int) -> None:
        """A child of ours ended: perhaps a rank, also one whose stub is gone."""
        rank = self._by_pid.get(pid)
        if rank is None:
            return
        if rank.connection is None:
            self.ended(rank, status)
        else:
            rank.orphan_status = status  # its stub was killed, too: lost_stub follows

    def lost_stub(self, rank: Rank) -> None:
        """A stub that was killed leaves its program to us: it is our child now."""
        if rank.key not in self._expected:
            return
        rank.connection = None
        self._context.record("stub-lost", rank=rank.number)
        if not rank.pid or not tree.send(rank.pid, 0):
            self.ended(rank, rank.orphan_status)
        elif rank.key not in self._signalled and self._abort_code(rank) is not None:
            # it called MPI_Abort and still runs, because the MPI killed the stub instead
            tree.send(rank.pid, signal.SIGKILL)
            self.ended(rank, None)

    def lost_entry_point(self, key: Key) -> bool:
        """The entry point that started a rank beside us has ended, so nobody could reap that rank: it is killed.

        Returns whether there was such a rank.
        """
        rank = self._ranks.get(key)
        if rank is not None and key in self._expected:
            if rank.pid:
                tree.send(rank.pid, signal.SIGKILL)
            self.ended(rank, None)
        return rank is not None

    def _abort_code(self, rank: Rank) -> int | None:
        """The code with which a rank asked its MPI to end the job; None if it didn't.

        The MPI kills the rank's stub then. A program that only prints such a line, as its own or as another rank's,
        still has its stub when it ends, and that knows its true status.
        """
        if not rank.prints_abort or rank.connection is not None:
            return None
        from musterpoint.core.diagnosis.program_output import abort_code  # as in _failure_of

        for tail in self._tails_of(rank):
            code = abort_code(tail, rank.number) if ABORTED in tail else None
            if code is not None:
                return code
        return None

    def _tails_of(self, rank: Rank) -> tuple[bytes, bytes]:
        """The ends of what a rank wrote to stderr and, where that is separate, to stdout."""
        return self._pump.tail(rank.number), self._pump.stdout_tail(rank.number)

    def ended(self, rank: Rank, status: int | None) -> None:
        """A rank ended. Where its MPI ended its stub because it called ``MPI_Abort``, the code that it gave goes before
        ``status``: the program may run on then, and end with any.
        """
        if rank.key not in self._expected:
            return
        self._expected.discard(rank.key)
        if rank.pid:
            self._by_pid.pop(rank.pid, None)
        signalled = rank.key in self._signalled
        aborted = None if signalled else self._abort_code(rank)
        status = self._once.status_behind(rank.pid, status) if aborted is None else aborted
        self._cut_off |= status != 0
        oom = not signalled and self.oom_struck(status)
        first = self._pump.first_output(rank.number)
        self._context.record(
            "rank-ended", rank=rank.number, status=status, signalled=signalled, oom=oom, first_output=first
        )
        before = frozenset(self._ended_well)
        if status == 0 and not signalled:
            self._ended_well.add(rank.number)
        quiet = QUIET_STATUSES | {-self._signal, 128 + self._signal, self._signal}
        failed = status != 0 and not (signalled and status in quiet)
        end = None
        if failed or self._wait_for_orphans:
            given_up = rank.mpi and rank.connection is None and aborted is None
            tails = self._tails_of(rank)
            end = RankEnd(
                rank.number, rank.key, status, time.time(), oom, *tails, rank.mpi, given_up,
                aborted is not None, rank.prints_abort, rank.raised,
            )  # fmt: skip
        rest = RestOfOutput(self._context.loop, self._pump, rank.number, self.settle, self._time_left)
        self._ended.append(EndedRank(rank, end, failed, before, rest))
        self._last_end = self._context.loop.clock()
        self._orphans_had_time = False
        if end is not None and failed and not signalled and not rest.is_over and rank.foreseen is None:
            failure = self._failure_of(rank, end, before)
            self._emit(Raised(failure._replace(ending=True, second_hand=True)))  # what is being read may say why
        self.settle()

    @property
    def _time_left(self) -> float:
        """Seconds that the rest of a rank's output may take."""
        return LONGEST if self._told_to_end_by is None else self._told_to_end_by - self._context.loop.clock()

    def has_raised(self, facts: RaisedFacts) -> None:
        """A rank, or a Python that a shell in its place runs, tells of the exception that ends it."""
        rank = self._by_pid.get(facts.pid)
        if rank is None:
            rank = self._by_pid.get(tree.behind_shells(facts.pid, self._by_pid))
            if rank is not None:
                rank.below = facts  # the shell may go on after it, so that is told only if it is asked
                self.hidden.raised(rank.number, rank.pid, facts.pid, facts.chain[-1].text)
        elif rank.raised is None and rank.key in self._expected:
            rank.raised = facts
            self._context.record("rank-raised", rank=rank.number)
            self._will_fail(rank, facts)

    def tell_who_raised(self) -> None:
        """Emits a :class:`Raised` for ranks here that have raised and still run, and whose exception isn't told yet."""
        for rank in list(self._ranks.values()):
            if rank.key not in self._expected or not rank.pid or rank.foreseen is not None:
                continue
            if rank.still_below is not None:
                self._will_fail(rank, rank.still_below)
                continue
            from musterpoint.core.processes.shell_front import front_of

            for pid in front_of(rank.pid).programs:
                ask_raised(pid)
            self._will_fail(rank, None)

    def _will_fail(self, rank: Rank, facts: RaisedFacts | None) -> None:
        """Emits the failure that a rank which still runs will be, by what it told or (None) by its last output; not if
        that is a symptom, or the rank was told to end, or a person debugs one.
        """
        if rank.key in self._signalled or self._context.terminal is not None:
            return
        at = time.time()  # before anything that takes time: what happened first counts
        from musterpoint.core.diagnosis.culprit import is_wrapper
        from musterpoint.core.diagnosis.program_failures import ends_with_exception  # as in _failure_of

        tails = self._tails_of(rank)
        end = RankEnd(rank.number, rank.key, 1, at, False, *tails, rank.mpi, raised=facts)
        if facts is None and not ends_with_exception(end, self._context.diagnosis):
            return
        if facts is not None and is_wrapper(facts.chain[-1]):
            return  # a launcher prints how its rank ended only now
        failure = self._failure_of(rank, end, frozenset(self._ended_well))
        if not failure.is_symptom and failure.host == self._context.host and failure.code == 1:
            rank.foreseen = failure
            self._emit(Raised(failure._replace(ending=True)))

    def raised(self, number: int) -> str:
        """What the rank with this global number has raised, if it still runs; empty: nothing."""
        rank = self._of_number(number)
        if rank is None or rank.key not in self._expected:
            return ""
        if rank.foreseen is None:
            self._will_fail(rank, rank.still_below)
        return rank.foreseen.reason.partition("\n")[0] if rank.foreseen is not None else ""

    def printed(self, number: int) -> bytes:
        """The end of what the rank with this global number has printed."""
        rank = self._of_number(number)
        return b"\n".join(self._tails_of(rank)) if rank is not None else b""

    def raised_aside(self, number: int) -> str:
        """The exception that ended a thread or a child of the rank with this global number, if it still runs."""
        rank = self._of_number(number)
        if rank is None or rank.key not in self._expected:
            return ""
        from musterpoint.core.diagnosis.program_output import raised_aside  # as in _failure_of

        stderr, stdout = self._tails_of(rank)
        return raised_aside(stderr or stdout)

    def _failure_of(self, rank: Rank, end: RankEnd, ended: frozenset[int]) -> Failure:
        """The rank's failure: that of a launch of ours in it, where that ended it; else its own error.

        ``ended``: the ranks of this host that had ended with 0 before.
        """
        from musterpoint.core.diagnosis.program_failures import failure_of_rank  # 15 ms, for what failed

        failed = [one for one in rank.launches.ended if one is not None]
        after = None
        if rank.launches.ended:
            after = end_since(end, rank.launches.written, written(rank, self._pump), failed)
        failure = failure_of_rank(after or end, self._context.diagnosis)
        cause = next((one for one in reversed(failed) if one.code == failure.code), None)
        if cause is not None and after is None:
            return cause
        if self._world == 1:
            failure = failure._replace(lost_connection=False)  # there is no other rank
        if failure.kind != "peer" or not ended:
            return failure
        if len(ended) >= self._world - 1:
            return after_others(failure, ended, self._world)
        return failure._replace(ended=tuple(sorted(ended))[:MOST_ENDED])  # the leader knows of other hosts' ranks

    # -- what dead launchers leave behind --

    def settle(self) -> None:
        """Tells the ends of ranks, each when its output has been read.

        Once ranks are signalled, the last one's waits for what dead launchers left behind, too. To be called whenever
        a process has ended.
        """
        while self._ended:
            first = self._ended[0]
            if self._wait_for_orphans and not self._expected and len(self._ended) == 1:
                left = self._once.signal_orphans(
                    self.own_children(), self._signal, self._last_end, readers=first.rest.is_over
                )
                self._orphans_had_time |= left
                if left:
                    return
            if not first.rest.is_over:
                return
            del self._ended[0]
            rank, well = first.rank, not first.failed and first.rank.key not in self._signalled
            end = RankEnd(rank.number, rank.key, 1, time.time(), False, *self._tails_of(rank))
            self.hidden.ended(end, well)
            self._emit(RankEnded(first.rank.key, self._failure_at_end(first), self._cut_short(first)))

    def _failure_at_end(self, ended: EndedRank) -> Failure | None:
        """The failure that a rank's end is, by all that was written for it; None if it is none."""
        rank, end = ended.rank, ended.end
        if end is None:
            return None
        if ended.failed and rank.key not in self._signalled:
            self._pump.show(rank.number)
        tails = self._tails_of(rank)
        if ended.failed:
            whole = self.hidden.with_script(end._replace(tail=tails[0], stdout_tail=tails[1]), rank.below)
            failure = self._failure_of(rank, whole, ended.before)
            # one failure, though it was announced before
            return failure if rank.foreseen is None else failure._replace(at=rank.foreseen.at)
        if not (self._stopping and self._orphans_had_time):
            return None
        from musterpoint.core.diagnosis.program_failures import failure_of_orphans  # as in _failure_of

        since = tails[0].removeprefix(end.tail), tails[1].removeprefix(end.stdout_tail)
        return failure_of_orphans(end._replace(status=1, tail=since[0], stdout_tail=since[1]), self._context.diagnosis)

    def _cut_short(self, ended: EndedRank) -> Failure | None:
        """The failure that a rank had printed already when it was told to end for another's sake."""
        rank, end = ended.rank, ended.end
        if ended.failed or end is None or not end.status or self._stopping or rank.key not in self._signalled:
            return None
        from musterpoint.core.diagnosis.program_failures import failure_as_printed  # as in _failure_of

        tails = self._tails_of(rank)
        return failure_as_printed(end._replace(tail=tails[0], stdout_tail=tails[1]), self._context.diagnosis)

    def own_children(self) -> set[int]:
        """Pids of our children that are no orphans."""
        return {*self._by_pid, *self._others.pids, *self._context.sidecars.pids, *self.stubs}

    # -- stopping --

    def signal(self, signo: int, seconds: float, stopping: bool = False) -> int:
        """Sends ``signo`` to every live rank, once, and gives up those that never came up; returns how many there were.

        They have ``seconds``, the rest of their output included. When the last rank has ended, processes that ranks
        left behind are signalled and waited for, too: under a program that is a launcher itself they are the real
        ranks. ``stopping``: an error of theirs is then the rank's.
        """
        self._signal, self._wait_for_orphans, self._stopping = signo, True, stopping
        self._told_to_end_by = self._context.loop.clock() + seconds - TO_TELL
        for key in sorted(self._expected - self._signalled):
            self._signalled.add(key)
            if key in self._ranks and self._ranks[key].pid:
                self.tell(self._ranks[key], signo)
        for key in sorted(self._expected):
            rank = self._ranks.get(key)
            if rank is None or not rank.pid:
                self._give_up(key, rank)
        for ended in list(self._ended):
            ended.rest.end_within(self._time_left)
        return len(self._signalled)

    def tell(self, rank: Rank, signo: int) -> None:
        """Signals a rank; launches of ours in it come first.

        Whoever waits for them, and is no shell, hears when they have ended: Python and make end them at Ctrl-C, as if
        they had heard of that themselves.
        """
        from musterpoint.core.processes.shell_front import front_of

        below = rank.launches
        if below.running and not below.running.issubset(front_of(rank.pid).programs):
            below.owed = signo
            for pid in below.running:
                self._once.send(pid, signo)
        else:
            below.owed = 0
            self._once.send(rank.pid, signo)

    def _give_up(self, key: Key, rank: Rank | None) -> None:
        """Gives up a rank that its launcher hasn't started yet; kills the launcher if none of its ranks runs."""
        if rank is not None and rank.connection is not None:
            rank.connection.close()
        if not any(other.pid for other in self._ranks.values()):
            self._others.kill("launcher")
        self._expected.discard(key)
        self._cut_off = True
        self._emit(RankEnded(key, None))

    def pass_on(self, signo: int) -> None:
        """Sends SIGUSR1 or SIGUSR2 to the live ranks."""
        for key in self._expected:
            if key in self._ranks and self._ranks[key].pid:
                pass_on(self._ranks[key].pid, signo)

    def being_killed(self) -> None:
        """Everything is being killed: no end from now on is a failure, and orphans get no time."""
        self._signalled.update(self._expected)
        self._wait_for_orphans = False
        for ended in list(self._ended):
            ended.rest.end_within(0.0)
        self.settle()

    def dismiss(self) -> None:
        """Ends the stubs: their programs have ended."""
        for rank in self._ranks.values():
            if rank.connection is not None:
                rank.connection.close()

    def close(self) -> None:
        self.hidden.close()
        for ended in self._ended:
            ended.rest.close()
