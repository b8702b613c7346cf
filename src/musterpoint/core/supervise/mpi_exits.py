"""MPI ranks that end with 0 while others run: what the MPI does then, and which rank is named as the cause."""

from __future__ import annotations

from typing import Callable

from musterpoint.base.failure import Failure
from musterpoint.core.supervise.context import SupervisorContext
from musterpoint.core.supervise.events import Broken, LocalEvent
from musterpoint.core.supervise.own_failures import ended_by_mpi, left_without_finalize
from musterpoint.core.supervise.ranks import Rank, Ranks

LEFT_ALONE = 0.5
"""Seconds after which an MPI learns that a rank has ended with 0 while the job goes on."""
UNEXPLAINED = 3.0
"""Seconds to wait for another explanation after an MPI has signalled ranks."""
BLAMED = 20.0
"""Seconds after a rank has left in which the end of its MPI is blamed on that."""


class MpiExits:
    """``is_ending()``: the job is ending anyway, so nothing here matters."""

    def __init__(
        self,
        context: SupervisorContext,
        ranks: Ranks,
        emit: Callable[[LocalEvent], None],
        is_ending: Callable[[], bool],
    ) -> None:
        self._context, self._ranks, self._emit, self._refusing = context, ranks, emit, is_ending
        self._left: tuple[Rank, float] | None = None

    def ended(self, rank: Rank | None) -> None:
        """A rank has ended with 0. Without MPI_Finalize others may wait for it for ever: its MPI must learn of it."""
        if rank is not None and rank.mpi:
            self._context.loop.call_later(LEFT_ALONE, lambda: self._release(rank))

    def _release(self, rank: Rank) -> None:
        """Lets the stub exit: the MPI sees that the rank has ended."""
        if not self._refusing() and rank.connection is not None:
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
