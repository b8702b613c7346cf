"""A member of the crew: a rank that has been started, or that its launcher's stub has reported."""

from __future__ import annotations

from musterpoint.supervise import tree
from musterpoint.supervise.desk import Visitor
from musterpoint.supervise.events import Key


class Member:
    """``pid`` is 0 until the program runs; ``visitor`` is its stub's connection, ``stub`` the pid.

    ``name`` tells its output from that of ranks of the same number in other sessions. ``orphan_status`` is how it ended
    if it was reaped as our own child because its stub is gone. ``mpi`` says that an MPI started it.
    """

    __slots__ = ("key", "local_rank", "mpi", "name", "orphan_status", "pid", "rank", "stub", "visitor")

    def __init__(
        self, key: Key, rank: int, local_rank: int, name: str, pid: int, visitor: Visitor | None = None, stub: int = 0,
        mpi: bool = False,
    ) -> None:  # fmt: skip
        self.key, self.rank, self.local_rank, self.name = key, rank, local_rank, name
        self.pid, self.visitor, self.stub, self.mpi = pid, visitor, stub, mpi
        self.orphan_status: int | None = None

    def send(self, signo: int) -> None:
        """Sends ``signo`` to the program, past the shells in front of it."""
        if self.pid:
            for pid in tree.stop_targets(self.pid, signo):
                tree.send(pid, signo)
