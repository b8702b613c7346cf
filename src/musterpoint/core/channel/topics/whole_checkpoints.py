"""Which checkpoints are whole on all hosts: each host tells of its part, the leader of what its own mark says."""

from typing import Annotated, Any, Callable

from musterpoint.base.records import NamedTuple
from musterpoint.core.channel.bounds import Range, Text, WireError
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
    """This host's ranks have ended, and its last part is at the store. ``cut_off``: not all ended with 0, so that one
    may be missing which another host's checkpoint needs.
    """

    problem: Annotated[str, Text(LONGEST)] = ""
    cut_off: bool = False


class MarkedWhole(NamedTuple):
    """The checkpoint ``name`` is marked as whole on the leader: each host's files of it are, too. ``attempt``: in which
    it was saved.
    """

    name: Annotated[str, Text(LONGEST)]
    attempt: Annotated[int, Range(0, 2**31)]


class NoMoreMarks(NamedTuple):
    """The leader's ranks have ended, and it marks nothing more."""


class HostGone(NamedTuple):
    """A host is lost, or has left; the channel says so."""

    why: str


Word = PartKept | NoMoreParts | MarkedWhole | NoMoreMarks
"""What a host tells."""


class Told(NamedTuple):
    """``message`` of ``host``."""

    host: str
    message: Any


OnTold = Callable[[Told], None]


class WholeCheckpoints:
    """What a host tells the others. ``on_told`` of :meth:`listen` hears them, what came before included."""

    def listen(self, on_told: OnTold) -> None:
        raise NotImplementedError

    def tell(self, message: Word) -> None:
        """A worker tells the leader; the leader tells all."""
        raise NotImplementedError

    def wait(self) -> None:
        """This host's ranks have ended: what it keeps last takes the others' last words."""
        raise NotImplementedError

    def forget(self) -> None:
        """Checkpoints are kept anew: nobody has said yet that nothing more comes."""
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
        self._ended, self._waits = set[str](), False

    def listen(self, on_told: OnTold) -> None:
        self._waiting.listen(on_told)

    def tell(self, message: Word) -> None:
        self._side.check(message)
        self._side.broadcast(message)

    def wait(self) -> None:
        self._waits = True

    def forget(self) -> None:
        self._ended, self._waits = set(self._side.away), False

    def hear(self, host: str, message: "PartKept | NoMoreParts") -> None:
        self._counts[host] = self._counts.get(host, 0) + 1
        if self._counts[host] > MOST:
            raise WireError(f"more than {MOST} parts")
        if isinstance(message, NoMoreParts):
            self._ended.add(host)
        self._waiting.add(Told(host, message))

    def awaits(self) -> set[str]:
        return set(self._side.group) - {self._side.me} - self._ended if self._waits else set()

    def gone(self, host: str, why: str) -> None:
        self._ended.add(host)
        self._waiting.add(Told(host, HostGone(why)))


class WorkersCheckpoints(WorkerHalf, WholeCheckpoints):
    """It goes on over attempts."""

    def __init__(self, side: WorkerSide) -> None:
        super().__init__(side)
        self._waiting = _Waiting()
        self._waits = self._leader_ended = False

    def listen(self, on_told: OnTold) -> None:
        self._waiting.listen(on_told)

    def tell(self, message: Word) -> None:
        if not self._side.is_alone:
            self._side.check(message)
            self._side.post(message)

    def wait(self) -> None:
        self._waits = True

    def forget(self) -> None:
        self._waits, self._leader_ended = False, self._side.is_alone

    def hear(self, message: "MarkedWhole | NoMoreMarks", size: int) -> None:
        self._leader_ended |= isinstance(message, NoMoreMarks)
        self._waiting.add(Told(self._side.leader, message))

    def awaits_leader(self) -> bool:
        return self._waits and not self._leader_ended

    def alone(self) -> None:
        self._leader_ended = True
        self._waiting.add(Told(self._side.leader, HostGone(self._side.loss)))


TOPIC: Topic[WholeCheckpoints] = Topic(
    "whole_checkpoints", (PartKept, NoMoreParts), (MarkedWhole, NoMoreMarks), LeadersCheckpoints, WorkersCheckpoints
)
