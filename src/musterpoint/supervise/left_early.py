"""Ranks that end with 0 while others of their MPI job run on: what the MPI makes of it, and who is named for that."""

from __future__ import annotations

from typing import Callable

from musterpoint.failure import Failure
from musterpoint.loop import Loop
from musterpoint.supervise.events import Broken, LocalEvent
from musterpoint.supervise.outcome import Explainer
from musterpoint.supervise.ranks import Rank, Ranks

LEFT_ALONE = 0.5
"""Seconds after which an MPI learns that a rank has ended with 0 while the job goes on."""
UNEXPLAINED = 3.0
"""Seconds after which an MPI that tells ranks to end isn't explained by anything else."""
BLAMED = 20.0
"""Seconds in which an MPI ends a job because of a rank that left."""


class LeftEarly:
    """``refusing`` says that the job is ending anyway; nothing of this counts then."""

    def __init__(
        self, loop: Loop, members: Ranks, emit: Callable[[LocalEvent], None], explain: Callable[[], Explainer],
        record: Callable[..., None], refusing: Callable[[], bool],
    ) -> None:  # fmt: skip
        self._loop, self._members, self._emit = loop, members, emit
        self._explain, self._record, self._refusing = explain, record, refusing
        self._left: dict[int, tuple[Rank, float]] = {}

    def ended(self, member: Rank, status: int) -> None:
        """A rank has ended. Without MPI_Finalize, others may wait for one that ended well, for ever, unless its MPI is
        told: it ends them then.
        """
        if member.mpi and status == 0:
            self._loop.call_later(LEFT_ALONE, lambda: self._tell_mpi(member))

    def _tell_mpi(self, member: Rank) -> None:
        if not self._refusing() and member.connection is not None:
            self._record("left", rank=member.rank)
            self._left[member.key[0]] = (member, self._loop.clock())
            member.connection.send("release")

    def ask_why(self, member: Rank) -> None:
        """An MPI has told a rank to end, or killed its stub. The program goes on; the reason is known in a moment."""
        if member.mpi and not self._refusing() and self._members.is_expected(member):
            self._loop.call_later(UNEXPLAINED, lambda: self._ended_by_mpi(member))

    def _ended_by_mpi(self, member: Rank) -> None:
        """No rank has failed, so mpirun would wait for ever."""
        if self._refusing() or not self._members.is_expected(member):
            return
        left, _ = self._left.get(member.key[0], (None, 0.0))
        explain = self._explain()
        if left is not None:
            self._emit(Broken(explain.left_without_finalize(left.rank, left.local_rank)))
        else:
            self._emit(Broken(explain.ended_by_mpi(member.rank, member.local_rank)))

    def instead_of(self, failure: Failure | None, session: int, name: str, status: int) -> Failure | None:
        """What the end of a session's mpirun or daemon ``name`` means, which alone would mean ``failure``."""
        if session not in self._left:
            return failure
        member, at = self._left[session]
        if status == 0 and "pmi_proxy" in name and not self._members.running(session):
            return None  # Hydra's daemon ends with its last rank
        if self._loop.clock() - at < BLAMED:
            return self._explain().left_without_finalize(member.rank, member.local_rank)
        return failure
