"""Ranks whose processes others start: a launcher, through stubs of ours, and this host's other entry points."""

from __future__ import annotations

import os
from typing import Callable

from musterpoint.base.failure import Failure
from musterpoint.core.launch.launch_plan import LaunchPlan, ProcessPlan
from musterpoint.core.processes.control_socket import Connection
from musterpoint.core.supervise.context import SupervisorContext
from musterpoint.core.supervise.events import Broken, Key, LocalEvent
from musterpoint.core.supervise.own_failures import (
    ended_by_mpi,
    ended_unseen,
    left_without_finalize,
    lost_entry_point,
    unplanned_rank,
    wrong_world,
)
from musterpoint.core.supervise.process_starter import ProcessStarter, StartedPlan
from musterpoint.core.supervise.rank_ends import RankEnds
from musterpoint.core.supervise.rank_table import Rank, Ranks

UNSEEN_SECONDS = 1.0
"""For the call of a rank's stub that was on its way when the process above it ended."""
_DIGITS = 10
"""Of the longest number that a stub or an agent sends."""

LEFT_ALONE = 0.5
"""Seconds after which an MPI learns that a rank has ended with 0 while the job goes on."""
UNEXPLAINED = 3.0
"""Seconds to wait for another explanation after an MPI has signalled ranks."""
BLAMED = 20.0
"""Seconds after a rank has left in which the end of its MPI is blamed on that."""


class ForeignRanks:
    """Takes the connections of stubs, and lets other entry points start. ``is_ending()``: the job is ending.

    ``started`` is set before the plan's processes are. ``take_connection`` gets connections of others.
    """

    def __init__(
        self,
        context: SupervisorContext,
        ranks: Ranks,
        ends: RankEnds,
        emit: Callable[[LocalEvent], None],
        take_connection: Callable[[Connection, str], bool],
        is_ending: Callable[[], bool],
    ) -> None:
        self._context, self._ranks, self._ends, self._emit = context, ranks, ends, emit
        self._take_connection, self._is_ending = take_connection, is_ending
        self.mpi_exits = MpiExits(context, ranks, emit, is_ending)
        self.starter: ProcessStarter
        self.started: StartedPlan | None = None

    def let_others_start(self, started: StartedPlan, process: ProcessPlan) -> None:
        """The host's other entry points start their ranks, each with the variables that it has itself."""
        others = self._context.others
        environment = self.starter.environment_for(started, process)
        given = {name: value for name, value in environment.items() if started.environ.get(name) != value}
        others.watch(
            lambda rank, local: self._lost_entry_point(local, rank),
            lambda rank, local, status: self._ended_unseen(local, rank, status),
        )
        others.start(process.words, given, [name for name in started.environ if name not in environment])

    def _lost_entry_point(self, key: Key, number: int) -> None:
        """Another entry point of this host has ended: its rank isn't watched any more."""
        if self._is_ending() and not self._ranks.is_missing(key):
            self._ends.lost_entry_point(key)
            return
        self._context.record("entry-point-lost", rank=number, local_rank=key)
        if not self._ends.lost_entry_point(key):
            self._emit(Broken(lost_entry_point(number, key, self._context.diagnosis)))

    def _ended_unseen(self, key: Key, number: int, status: int) -> None:
        """What another entry point of this host started for its rank has ended: without a rank, that would wait."""

        def judge() -> None:
            if self._ranks.is_missing(key) and not self._is_ending():
                self._context.record("rank-ended-unseen", rank=number, status=status)
                self._emit(Broken(ended_unseen(number, key, status, self._context.diagnosis)))

        self._context.loop.call_later(UNSEEN_SECONDS, judge)

    # -- stubs --

    def connected(self, connection: Connection) -> None:
        connection.route_to(lambda words, line: self._first_line(connection, words, line))

    def _first_line(self, connection: Connection, words: list[str], line: str) -> None:
        """The first line of a connection says what it is."""
        if words[:1] == ["rank"] and len(words) == 5:
            number, local_rank, world, stub = map(number_of, words[1:])
            self._registered(connection, local_rank, number, world, stub)
        elif not self._take_connection(connection, line):
            connection.close()

    def _registered(self, connection: Connection, key: Key, number: int, world: int, stub: int) -> None:
        """A launcher has started a stub, with the pid ``stub``, in the place of rank ``number``."""
        started = self.started
        if started is None or self._is_ending():
            connection.close()  # the stub exits when it gets no answer
            return
        self._context.record("rank-registered", rank=number, local_rank=key, world_size=world, stub=stub)
        wrong = self._misplaced(started.plan, key, number, world)
        if self._ranks.is_missing(key):
            rank = Rank(key, number, connection, stub, started.under_mpi, started.plan.hydra)
            self._ranks.up[rank.key] = rank
            connection.route_to(lambda words, line: self._stub_line(rank, words), lambda: self._lost_stub(rank))
            if wrong is None:
                self._send_go(rank, connection)
        if wrong is not None:
            self._emit(Broken(wrong))

    def _misplaced(self, plan: LaunchPlan, local_rank: Key, number: int, world: int) -> Failure | None:
        """The failure of a rank that isn't planned here or has another world size; None if it is right."""
        if world == plan.world_size and self._ranks.is_missing(local_rank):
            return None
        if world != plan.world_size:
            return wrong_world(number, world, plan.world_size, self._context.diagnosis)
        return unplanned_rank(number, local_rank, plan.local_ranks, self._context.diagnosis)

    def _send_go(self, rank: Rank, connection: Connection) -> None:
        """Lets the stub start its program, with pipes of ours, or on the terminal that the rank gets."""
        out, err = self.starter.outputs(rank.number)
        connection.send("go", (out, err))
        for fd in {out, err}:
            os.close(fd)

    def _stub_line(self, rank: Rank, words: list[str]) -> None:
        """Handles a line from a stub; a ValueError (a line that no stub sends) closes the connection."""
        word, number = words[0], number_of(words[1])
        if word == "started":
            if rank.pid or number < 2 or number == os.getpid():
                raise ValueError(f"{number} is no pid of a rank")
            self._ranks.set_pid(rank, number)
            self._ends.hidden.started(rank.number, number)
            self._context.record("rank-started", rank=rank.number, pid=number)
        elif word == "signal":
            self._context.record("launcher-signal", rank=rank.number, signal=number)
            self.mpi_exits.signalled_by_mpi(rank)
        elif word == "ended":
            status = os.waitstatus_to_exitcode(number)
            self._ends.ended(rank, status)

    def _lost_stub(self, rank: Rank) -> None:
        self._ends.lost_stub(rank)
        self.mpi_exits.signalled_by_mpi(rank)


class MpiExits:
    """MPI ranks that end with 0 while others run: what the MPI does then, and which rank is named as the cause.

    ``is_ending()``: the job is ending anyway, so nothing here matters.
    """

    def __init__(
        self,
        context: SupervisorContext,
        ranks: Ranks,
        emit: Callable[[LocalEvent], None],
        is_ending: Callable[[], bool],
    ) -> None:
        self._context, self._ranks, self._emit, self._refusing = context, ranks, emit, is_ending
        self._left: tuple[Rank, float] | None = None
        self.is_over = False

    def over(self) -> None:
        """All ranks of the world have ended with 0: what its MPI does from now on is its own end."""
        self.is_over, self._left = True, None

    def ended(self, rank: Rank | None) -> None:
        """A rank has ended with 0. Without MPI_Finalize others may wait for it for ever: its MPI must learn of it."""
        if rank is not None and rank.mpi:
            self._context.loop.call_later(LEFT_ALONE, lambda: self._release(rank))

    def _release(self, rank: Rank) -> None:
        """Lets the stub exit: the MPI sees that the rank has ended."""
        if not (self._refusing() or self.is_over) and rank.connection is not None:
            self._context.record("rank-left", rank=rank.number)
            self._left = rank, self._context.loop.clock()
            rank.connection.send("release")

    def signalled_by_mpi(self, rank: Rank) -> None:
        """An MPI has signalled a rank to end, or killed its stub. Waits a little for the reason."""
        if rank.mpi and not self._refusing() and self._ranks.is_expected(rank):
            self._context.loop.call_later(UNEXPLAINED, lambda: self._unexplained(rank))

    def _unexplained(self, rank: Rank) -> None:
        """Reports a failure, since no rank has: mpirun would wait for ever."""
        if self._refusing() or not self._ranks.is_expected(rank):
            return
        left = self._left[0] if self._left is not None else None
        failure_of = ended_by_mpi if left is None else left_without_finalize
        named = left or rank
        self._emit(Broken(failure_of(named.number, named.key, self._context.diagnosis)))

    def failure_at_end(self, failure: Failure | None, status: int, hydra: bool) -> Failure | None:
        """What the end of mpirun or a daemon of it means; ``failure`` if no rank left before. ``hydra``: its kind."""
        if self._left is None:
            return failure
        rank, at = self._left
        if hydra and status == 0 and not self._ranks.expected:
            return None  # it ends with its last rank; Open MPI's daemons end with the job
        if self._context.loop.clock() - at < BLAMED:
            return left_without_finalize(rank.number, rank.key, self._context.diagnosis)
        return failure


def number_of(word: str) -> int:
    """A number from a stub or an agent; ValueError if it isn't one, or is too long."""
    if not (word.isascii() and word.isdecimal()) or len(word) > _DIGITS:
        raise ValueError(f"{word[:20]!r} is no number")
    return int(word)
