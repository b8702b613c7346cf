"""How ranks end: gathers what each has left, and tells its failure when its output has been read."""

from __future__ import annotations

import signal
import time
from typing import TYPE_CHECKING, Any, Callable, Literal

from musterpoint.base.failure import Failure
from musterpoint.base.records import NamedTuple
from musterpoint.core.diagnosis import Evidence, diagnose
from musterpoint.core.processes import process_tree
from musterpoint.core.processes.control_socket import ask_raised
from musterpoint.core.processes.pump import Pump
from musterpoint.core.processes.rest_of_output import LONGEST, RestOfOutput
from musterpoint.core.processes.signal_once import SignalOnce
from musterpoint.core.supervise.context import SupervisorContext
from musterpoint.core.supervise.events import Broken, Key, LocalEvent, Raised, RankEnded
from musterpoint.core.supervise.hidden_work import HiddenWork
from musterpoint.core.supervise.rank_table import Rank, Ranks

if TYPE_CHECKING:
    from musterpoint.core.diagnosis.raised_facts import RaisedFacts

QUIET_STATUSES = frozenset({-int(signal.SIGTERM), -9, 143, 137, 0})
"""Statuses that are no failure after a rank was signalled, beside that signal's own (and ``sys.exit(signum)``)."""
TO_TELL = 0.3
"""Seconds of its grace that a rank's output leaves for telling its end."""
ABORTED = b"Abort("
"""Printed by an MPI when a program calls ``MPI_Abort``."""


def written(rank: Rank, pump: Pump) -> tuple[int, int]:
    """The bytes that a rank has written to stderr and, where separate, to stdout."""
    pump.still_open(rank.number)  # reads what has come by now
    totals = [stream.tail.total for stream in pump.streams_of(rank.number)]
    return (totals[-1], totals[0]) if len(totals) > 1 else (sum(totals), 0)


class EndedRank(NamedTuple):
    """A rank whose end isn't told yet: its output is read first.

    ``evidence``: what there was at its end; None where that isn't needed. ``failed``: it is a failure.
    """

    rank: Rank
    evidence: Evidence | None
    failed: bool
    rest: RestOfOutput


class RankEnds:
    """Ends of this host's ranks. ``emit`` gets a :class:`RankEnded` for every expected one.

    ``once`` signals what ranks leave behind; ``hidden`` keeps what those that end with 0 hide.
    """

    def __init__(
        self, context: SupervisorContext, ranks: Ranks, once: SignalOnce, emit: Callable[[LocalEvent], None]
    ) -> None:
        self._context, self._ranks, self._once, self._emit = context, ranks, once, emit
        self._oom_before = context.oom_kills()
        self._ended_well: set[int] = set()
        self._cut_off = False
        self._ended: list[EndedRank] = []  # in the order in which they ended
        self._ending: Literal["", "failed", "stopping"] = ""
        self._waits_for_orphans = False
        self._told_to_end_by = 0.0
        self._last_end = 0.0
        self._orphans_had_time = False
        self.hidden = HiddenWork(context)
        once.on_end = self.settle

    def oom_struck(self, status: int | None) -> bool:
        """Whether ``status`` is an error, and the kernel has OOM-killed a process since the start."""
        return status != 0 and self._context.oom_kills() > self._oom_before

    @property
    def are_untold(self) -> bool:
        """There are ranks whose end isn't told yet."""
        return bool(self._ranks.expected or self._ended)

    @property
    def cut_off(self) -> bool:
        """Whether a rank of this host has not ended with 0, also one that was told to end: it may have been saving."""
        return self._cut_off or bool(self._ranks.expected)

    # -- what they left --

    def evidence(self, rank: Rank, status: int | None, **more: Any) -> Evidence:
        """What there is of ``rank`` by now, with ``more`` fields that only some ends have."""
        facts = {"at": time.time(), "raised": rank.raised, "ended_well": frozenset(self._ended_well), **more}
        since = (0, 0)
        if rank.launches.ended:
            now, then = written(rank, self._context.pump), rank.launches.written
            since = now[0] - then[0], now[1] - then[1]
        return Evidence(
            rank=rank.number,
            local_rank=rank.key,
            status=status,
            tail=self._context.pump.tail(rank.number),
            stdout_tail=self._context.pump.stdout_tail(rank.number),
            mpi=rank.mpi,
            ends_anyhow=rank.prints_abort,
            world=self._ranks.world,
            launches=tuple(rank.launches.ended),
            since_launch=since,
            **facts,
        )

    def failure(self, evidence: Evidence) -> Failure | None:
        return diagnose(evidence, self._context.diagnosis)

    def _abort_code(self, rank: Rank) -> int | None:
        """The code with which a rank asked its MPI to end the job; None if it didn't.

        The MPI kills the rank's stub then. A program that only prints such a line, as its own or as another rank's,
        still has its stub when it ends, and that knows its true status.
        """
        if not rank.prints_abort or rank.connection is not None:
            return None
        evidence = self.evidence(rank, None, seen="aborting")
        failure = self.failure(evidence) if ABORTED in evidence.tail + evidence.stdout_tail else None
        return failure and failure.code

    # -- how they end --

    def reaped(self, pid: int, status: int) -> None:
        """A child of ours ended: perhaps a rank, also one whose stub is gone."""
        rank = self._ranks.by_pid.get(pid)
        if rank is not None and rank.connection is None:
            self.ended(rank, status)
        elif rank is not None:
            rank.orphan_status = status  # its stub was killed, too: lost_stub follows

    def lost_stub(self, rank: Rank) -> None:
        """A stub that was killed leaves its program to us: it is our child now."""
        if not self._ranks.is_expected(rank):
            return
        rank.connection = None
        self._context.record("stub-lost", rank=rank.number)
        if not rank.pid or not process_tree.send(rank.pid, 0):
            self.ended(rank, rank.orphan_status)
        elif rank.key not in self._ranks.signalled and self._abort_code(rank) is not None:
            # it called MPI_Abort and still runs, because the MPI killed the stub instead
            process_tree.send(rank.pid, signal.SIGKILL)
            self.ended(rank, None)

    def lost_entry_point(self, key: Key) -> bool:
        """The entry point that started a rank beside us has ended, so nobody could reap that rank: it is killed.

        Returns whether there was such a rank.
        """
        rank = self._ranks.up.get(key)
        if rank is not None and key in self._ranks.expected:
            if rank.pid:
                process_tree.send(rank.pid, signal.SIGKILL)
            self.ended(rank, None)
        return rank is not None

    def ended(self, rank: Rank, status: int | None) -> None:
        """A rank ended. Where its MPI ended its stub because it called ``MPI_Abort``, the code that it gave goes before
        ``status``: the program may run on then, and end with any.
        """
        if not self._ranks.forget(rank):
            return
        context, signalled, signo = self._context, rank.key in self._ranks.signalled, self._ranks.signo
        aborted = None if signalled else self._abort_code(rank)
        status = self._once.status_behind(rank.pid, status) if aborted is None else aborted
        self._cut_off |= status != 0
        oom = not signalled and self.oom_struck(status)
        first = context.pump.first_output(rank.number)
        context.record("rank-ended", rank=rank.number, status=status, signalled=signalled, oom=oom, first_output=first)
        failed = status != 0 and not (signalled and status in QUIET_STATUSES | {-signo, 128 + signo, signo})
        evidence = None
        if failed or self._waits_for_orphans:
            given_up = rank.mpi and rank.connection is None and aborted is None
            evidence = self.evidence(rank, status, oom=oom, given_up=given_up, aborted=aborted is not None)
        if status == 0 and not signalled:
            self._ended_well.add(rank.number)
        rest = RestOfOutput(context.loop, context.pump, rank.number, self.settle, self._time_left)
        self._ended.append(EndedRank(rank, evidence, failed, rest))
        self._last_end = context.loop.clock()
        self._orphans_had_time = False
        tells = evidence is not None and failed and not signalled and not rest.is_over and rank.foreseen is None
        if evidence is not None and tells and (failure := self.failure(evidence)) is not None:
            self._emit(Raised(failure._replace(ending=True, second_hand=True)))  # what is being read may say why
        self.settle()

    @property
    def _time_left(self) -> float:
        """Seconds that the rest of a rank's output may take."""
        return self._told_to_end_by - self._context.loop.clock() if self._ending else LONGEST

    def settle(self) -> None:
        """Tells the ends of ranks, each when its output has been read.

        Once ranks are signalled, the last one's waits for what dead launchers left behind, too. To be called whenever
        a process has ended.
        """
        while self._ended:
            first = self._ended[0]
            if self._waits_for_orphans and not self._ranks.expected and len(self._ended) == 1:
                left = self._once.signal_orphans(
                    self.own_children(), self._ranks.signo, self._last_end, readers=first.rest.is_over
                )
                self._orphans_had_time |= left
                if left:
                    return
            if not first.rest.is_over:
                return
            del self._ended[0]
            well = not first.failed and first.rank.key not in self._ranks.signalled
            self.hidden.ended(self.evidence(first.rank, 1, seen="ended well"), well)
            self._emit(RankEnded(first.rank.key, self._failure_at_end(first), self._cut_short(first)))

    def _whole(self, ended: EndedRank, **more: Any) -> Evidence:
        """The evidence of a rank's end with all that was written for it."""
        assert ended.evidence is not None
        script = self.hidden.script_of(ended.rank.number)
        now = self.evidence(ended.rank, ended.evidence.status, below=script and ended.rank.below, script=script)
        kept = {name: getattr(ended.evidence, name) for name in ("at", "oom", "given_up", "aborted", "ended_well")}
        return now._replace(**kept, **more)

    def _failure_at_end(self, ended: EndedRank) -> Failure | None:
        """The failure that a rank's end is; None if it is none."""
        rank, evidence = ended.rank, ended.evidence
        if evidence is None:
            return None
        if ended.failed and rank.key not in self._ranks.signalled:
            self._context.pump.show(rank.number)
        if ended.failed:
            failure = self.failure(self._whole(ended))
            # one failure, though it was announced before
            return failure if rank.foreseen is None or failure is None else failure._replace(at=rank.foreseen.at)
        if not (self._ending == "stopping" and self._orphans_had_time):
            return None
        whole = self._whole(ended, status=1, seen="orphans")
        since = whole.tail.removeprefix(evidence.tail), whole.stdout_tail.removeprefix(evidence.stdout_tail)
        return self.failure(whole._replace(tail=since[0], stdout_tail=since[1]))

    def _cut_short(self, ended: EndedRank) -> Failure | None:
        """The failure that a rank had printed already when it was told to end for another's sake."""
        rank, evidence = ended.rank, ended.evidence
        if ended.failed or evidence is None or not evidence.status or self._ending == "stopping":
            return None
        return self.failure(self._whole(ended, seen="cut short")) if rank.key in self._ranks.signalled else None

    def own_children(self) -> set[int]:
        """Pids of our children that are no orphans."""
        return {*self._ranks.by_pid, *self._ranks.others.pids, *self._context.sidecars.pids, *self._ranks.stubs}

    # -- stopping --

    def signal(self, signo: int, seconds: float, stopping: bool = False) -> int:
        """Sends ``signo`` to every live rank, once, and gives up those that never came up; returns how many there were.

        They have ``seconds``, the rest of their output included. When the last rank has ended, processes that ranks
        left behind are signalled and waited for, too: under a program that is a launcher itself they are the real
        ranks. ``stopping``: an error of theirs is then the rank's.
        """
        self._ending, self._waits_for_orphans = "stopping" if stopping else "failed", True
        self._told_to_end_by = self._context.loop.clock() + seconds - TO_TELL
        told = self._ranks.signal(signo)
        for key in self._ranks.unstarted:
            self._ranks.give_up(key)
            self._cut_off = True
            self._emit(RankEnded(key, None))
        for ended in list(self._ended):
            ended.rest.end_within(self._time_left)
        return told

    def being_killed(self) -> None:
        """Everything is being killed: no end from now on is a failure, and orphans get no time."""
        self._ranks.signalled.update(self._ranks.expected)
        self._waits_for_orphans = False
        for ended in list(self._ended):
            ended.rest.end_within(0.0)
        self.settle()

    def close(self) -> None:
        self.hidden.close()
        self._once.close()
        for ended in self._ended:
            ended.rest.close()


class RaisedRanks:
    """Ranks that tell of an exception, or have printed one, and still run: each will be a failure.

    One that is still on its way out after ``patience`` seconds ends the job: others may wait for it for ever, such as
    an MPI's other ranks for one in MPI_Finalize.
    """

    def __init__(
        self,
        context: SupervisorContext,
        ranks: Ranks,
        ends: RankEnds,
        emit: Callable[[LocalEvent], None],
        patience: float,
    ) -> None:
        self._context, self._ranks, self._ends, self._emit, self._patience = context, ranks, ends, emit, patience

    def heard(self, facts: RaisedFacts) -> None:
        """A rank, or a Python that a shell in its place runs, tells of the exception that ends it."""
        above = self._ranks.by_pid.get(process_tree.behind_shells(facts.pid, self._ranks.by_pid))
        rank = self._ranks.by_pid.get(facts.pid, above)
        if rank is None or not self._ranks.is_expected(rank) or rank.raised is not None:
            return
        self._context.loop.call_later(self._patience, lambda: self._overdue(rank, facts))
        if rank.pid != facts.pid:
            rank.below = facts  # the shell may go on after it, so that is told only if it is asked
            self._ends.hidden.raised(rank.number, rank.pid, facts.pid, facts.chain[-1].text)
            return
        rank.raised = facts
        self._context.record("rank-raised", rank=rank.number)
        self._foresee(rank, facts)

    def _overdue(self, rank: Rank, facts: RaisedFacts) -> None:
        """The time of a rank to end is over: it ends the job, if it still runs, and its shell waits for its Python."""
        if not self._ranks.is_expected(rank) or process_tree.read_stat(facts.pid) is None:
            return
        from musterpoint.core.processes.shell_front import front_of

        if facts.pid != rank.pid and facts.pid not in front_of(rank.pid).programs:
            return
        if rank.foreseen is None:
            self._foresee(rank, facts)
        if rank.foreseen is not None and rank.key not in self._ranks.signalled:
            self._context.record("rank-overdue", rank=rank.number)
            self._emit(Broken(rank.foreseen))

    def tell(self) -> None:
        """Emits a :class:`Raised` for ranks here that have raised and still run, and whose exception isn't told yet."""
        for rank in self._ranks.running:
            if rank.foreseen is not None:
                continue
            if rank.still_below is not None:
                self._foresee(rank, rank.still_below)
                continue
            from musterpoint.core.processes.shell_front import front_of

            for pid in front_of(rank.pid).programs:
                ask_raised(pid)
            self._foresee(rank, None)

    def _foresee(self, rank: Rank, facts: RaisedFacts | None) -> None:
        """Emits the failure that a rank which still runs will be, by what it told or (None) by its last output; not if
        the rank was told to end, or a person debugs one.
        """
        if rank.key in self._ranks.signalled or self._context.terminal is not None:
            return
        failure = self._ends.failure(self._ends.evidence(rank, 1, seen="raising", raised=facts))
        if failure is not None:
            rank.foreseen = failure
            self._emit(Raised(failure._replace(ending=True)))

    def sentence(self, number: int) -> str:
        """What the rank with this global number has raised, if it still runs; empty: nothing."""
        rank = self._ranks.of_number(number)
        if rank is None or not self._ranks.is_expected(rank):
            return ""
        if rank.foreseen is None:
            self._foresee(rank, rank.still_below)
        return rank.foreseen.reason.partition("\n")[0] if rank.foreseen is not None else ""

    def printed(self, number: int) -> bytes:
        """The end of what the rank with this global number has printed."""
        return b"\n".join((self._context.pump.tail(number), self._context.pump.stdout_tail(number)))

    def aside(self, number: int) -> str:
        """The exception that ended a thread or a child of the rank with this global number, if it still runs."""
        if number not in self._ranks.live:
            return ""
        from musterpoint.core.diagnosis import standstill

        return standstill.raised_aside(self._context.pump.tail(number) or self._context.pump.stdout_tail(number))
