"""A topic: a feature that speaks between hosts. One file has its messages, its leader's half and its worker's half.

A half is what this host calls, and what hears the messages of the other end. A lone host is a leader without workers.
"""

from __future__ import annotations

from typing import Any, Callable, Collection, Generic, Iterable, Protocol, TypeVar

from musterpoint.base.records import NamedTuple

Api = TypeVar("Api")


class World(NamedTuple):
    """A group of hosts whose programs belong together: a role of the job, or all that it has.

    ``ends``: the job's end is that of its programs. ``after``: the groups that must be ready before its programs start,
    and ``patience``: seconds in which it must be ready from then on. ``beside``: the group that has the hosts, too.
    """

    name: str
    hosts: frozenset[str]
    ends: bool = True
    after: tuple[str, ...] = ()
    patience: float = float("inf")
    beside: str = ""


def world_of(worlds: Iterable[World], host: str) -> World:
    """The group that has ``host``; an empty one: it is in none."""
    return next((each for each in worlds if host in each.hosts and not each.beside), World("", frozenset()))


class LeaderSide(Protocol):
    """What a leader's half has of the channel. ``me`` is the leader's name; a lone host's is empty."""

    me: str

    @property
    def others(self) -> Collection[str]:
        """All other hosts of the job."""

    @property
    def group(self) -> frozenset[str]:
        """The hosts of the distribution group, or of the role that leads."""

    @property
    def worlds(self) -> tuple[World, ...]:
        """All groups of the job."""

    @property
    def away(self) -> frozenset[str]:
        """The other hosts that are lost, or have said goodbye."""

    def is_away(self, host: str) -> bool:
        """Whether ``host`` is one of them."""

    @property
    def goodbyes(self) -> frozenset[str]:
        """The hosts that have said goodbye."""

    def is_done(self, host: str) -> bool:
        """Whether the ranks of ``host``, which may be this one, have ended."""

    def emit(self, event: Any) -> None:
        """Tells this host's supervisor."""

    def call_later(self, seconds: float, call: Callable[[], None]) -> object: ...

    def wall(self) -> float:
        """Seconds since the epoch."""

    def check(self, message: Any) -> None:
        """ValueError: the other end would refuse ``message``."""

    def broadcast(self, message: Any) -> None:
        """Sends ``message`` to every other host."""

    def send(self, host: str, message: Any) -> None:
        """Sends ``message`` to one of them, unless it is away."""

    def begin_attempt(self, attempt: Any) -> bool:
        """Sends ``attempt`` to every other host and forgets what is over. False: a stop came before it."""

    def tell_end(self, end: Any) -> None:
        """Sends ``end`` to every other host, and to those that wait for another attempt."""


class WorkerSide(Protocol):
    """What a worker's half has of the channel. ``me`` and ``leader`` are names."""

    me: str
    leader: str
    hosts: frozenset[str]

    @property
    def is_alone(self) -> bool:
        """The leader is lost or has left; why is ``loss``."""

    @property
    def loss(self) -> str: ...

    @property
    def unsent(self) -> int:
        """Messages that the leader hasn't acknowledged."""

    def emit(self, event: Any) -> None:
        """Tells this host's supervisor."""

    def call_later(self, seconds: float, call: Callable[[], None]) -> object: ...

    def check(self, message: Any) -> None:
        """ValueError: the other end would refuse ``message``."""

    def post(self, message: Any) -> None:
        """Sends ``message`` to the leader, unless this host is alone."""

    def begin_attempt(self) -> None:
        """The leader begins another attempt: forgets what is over."""


class LeaderHalf:
    """Its methods are called when something happens; all of them may be left as they are."""

    is_owed = False
    """Says whether a host's word is waited for however long: where it is refused, the host is lost."""

    def __init__(self, side: LeaderSide) -> None:
        self._side = side
        self.begin()

    def begin(self) -> None:
        """An attempt begins; the first one, too."""

    def hear(self, host: str, message: Any) -> None:
        """``host`` has sent ``message``, one of the topic's. WireError ends its connection."""

    def awaits(self) -> Collection[str]:
        """The hosts without whose word something that waits now doesn't go on, here or on another host. None of them
        may be away: tests hold that for every topic.
        """
        return ()

    def gone(self, host: str, why: str) -> None:
        """``host`` is lost or has left: nothing comes from it any more."""

    def left(self, host: str) -> None:
        """The ranks of ``host`` have ended, or it is gone."""

    def changed(self) -> None:
        """A host is done or away, and what follows of it has been told."""


class WorkerHalf:
    """The same on the other hosts."""

    def __init__(self, side: WorkerSide) -> None:
        self._side = side
        self.begin()

    def begin(self) -> None:
        """An attempt begins; the first one, too."""

    def hear(self, message: Any, size: int) -> None:
        """The leader has sent ``message``, which took ``size`` bytes. WireError ends the connection."""

    def awaits_leader(self) -> bool:
        """Whether something here goes on only with the leader's word. Never where this host is alone, as above."""
        return False

    def alone(self) -> None:
        """The leader is lost or has left: nobody answers any more."""


class Topic(Generic[Api]):
    """``from_workers`` and ``from_leader``: the types of its messages. ``leader`` and ``worker`` make its halves."""

    def __init__(
        self,
        name: str,
        from_workers: tuple[type[Any], ...],
        from_leader: tuple[type[Any], ...],
        leader: Callable[[LeaderSide], Api],
        worker: Callable[[WorkerSide], Api],
    ) -> None:
        self.name = name
        self.from_workers, self.from_leader = from_workers, from_leader
        self.leader, self.worker = leader, worker
