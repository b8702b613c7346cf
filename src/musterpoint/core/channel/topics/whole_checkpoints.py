"""Which checkpoints are whole on all hosts: each host tells of its part, the leader of what its own mark says."""

from typing import Annotated, Any, Callable, NamedTuple

from musterpoint.core.channel.fields import Text, WireError
from musterpoint.core.channel.topic import LeaderHalf, LeaderSide, Topic, WorkerHalf, WorkerSide

LONGEST = 2048
"""Characters of a checkpoint's name, and of the key of a part."""
MOST = 1_000_000
"""Parts that one host may tell of."""


class PartKept(NamedTuple):
    """This host's part of the checkpoint ``name`` is at the store, described by the object ``key``."""

    name: Annotated[str, Text(LONGEST)]
    key: Annotated[str, Text(LONGEST)]


class NoMoreParts(NamedTuple):
    """This host's ranks have ended, and its last part is at the store."""

    problem: Annotated[str, Text(LONGEST)] = ""


class MarkedWhole(NamedTuple):
    """The checkpoint ``name`` is marked as whole on the leader: each host's files of it are, too."""

    name: Annotated[str, Text(LONGEST)]


class HostGone(NamedTuple):
    """A host is lost, or has left; the leader's channel says so."""

    why: str


class Told(NamedTuple):
    """``message`` of ``host``."""

    host: str
    message: Any


OnTold = Callable[[Told], None]


class WholeCheckpoints:
    """What a host tells the others. ``on_told`` of :meth:`listen` hears them, what came before included."""

    def listen(self, on_told: OnTold) -> None:
        raise NotImplementedError

    def tell(self, message: "PartKept | NoMoreParts | MarkedWhole") -> None:
        """A worker tells the leader; the leader tells all."""
        raise NotImplementedError


class _Waiting:
    """Messages, until somebody listens."""

    def __init__(self) -> None:
        self._told: list[Told] = []
        self._on_told: OnTold | None = None

    def listen(self, on_told: OnTold) -> None:
        self._on_told = on_told
        told, self._told = self._told, []
        for each in told:
            on_told(each)

    def add(self, told: Told) -> None:
        if self._on_told is not None:
            self._on_told(told)
        else:
            self._told.append(told)


class LeadersCheckpoints(LeaderHalf, WholeCheckpoints):
    """It goes on over attempts."""

    def __init__(self, side: LeaderSide) -> None:
        super().__init__(side)
        self._waiting = _Waiting()
        self._counts: dict[str, int] = {}

    def listen(self, on_told: OnTold) -> None:
        self._waiting.listen(on_told)

    def tell(self, message: "PartKept | NoMoreParts | MarkedWhole") -> None:
        self._side.check(message)
        self._side.broadcast(message)

    def hear(self, host: str, message: "PartKept | NoMoreParts") -> None:
        self._counts[host] = self._counts.get(host, 0) + 1
        if self._counts[host] > MOST:
            raise WireError(f"more than {MOST} parts")
        self._waiting.add(Told(host, message))

    def gone(self, host: str, why: str) -> None:
        self._waiting.add(Told(host, HostGone(why)))


class WorkersCheckpoints(WorkerHalf, WholeCheckpoints):
    """It goes on over attempts."""

    def __init__(self, side: WorkerSide) -> None:
        super().__init__(side)
        self._waiting = _Waiting()

    def listen(self, on_told: OnTold) -> None:
        self._waiting.listen(on_told)

    def tell(self, message: "PartKept | NoMoreParts | MarkedWhole") -> None:
        if not self._side.is_alone:
            self._side.check(message)
            self._side.post(message)

    def hear(self, message: MarkedWhole, size: int) -> None:
        self._waiting.add(Told(self._side.leader, message))


TOPIC: Topic[WholeCheckpoints] = Topic(
    "whole_checkpoints", (PartKept, NoMoreParts), (MarkedWhole,), LeadersCheckpoints, WorkersCheckpoints
)
