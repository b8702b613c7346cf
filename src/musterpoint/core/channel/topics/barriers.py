"""Barriers at which the hosts of the group wait for one another."""

from typing import Annotated, Iterable

from musterpoint.base.records import NamedTuple
from musterpoint.core.channel.fields import Text, WireError
from musterpoint.core.channel.peers import Arrived
from musterpoint.core.channel.topic import LeaderHalf, Topic, WorkerHalf

MOST_OPEN = 16
"""Barriers at which one host may wait at a time."""
MOST_EVER = 16384
"""Barriers that there may be in all: each launcher that is handed over has one."""
LONGEST = 64
"""Characters of a barrier's name."""


class Arrive(NamedTuple):
    """A worker is at the barrier ``point``. The leader's answer is :class:`Arrived`."""

    point: Annotated[str, Text(LONGEST)]


class Barriers:
    """What a host says of barriers."""

    def arrive(self, point: str) -> None:
        """This host is at the barrier ``point``; :class:`Arrived` comes when all hosts of the group are."""
        raise NotImplementedError


class _Barrier:
    """``here``: the hosts that wait; ``missing``: how many hosts of the group haven't arrived yet."""

    __slots__ = ("here", "missing")

    def __init__(self, missing: int) -> None:
        self.here: set[str] = set()
        self.missing = missing


class WhoWaits:
    """Which host waits at which barrier. A barrier (``point``) opens when its first host arrives; it is reached when
    all hosts of the ``group`` have arrived, except those that have :meth:`left`.

    ``opened`` counts all barriers so far.
    """

    def __init__(self, group: Iterable[str]) -> None:
        self._group = frozenset(group)
        self._left: set[str] = set()
        self._open: dict[str, _Barrier] = {}
        self._waits: dict[str, int] = {}
        self.opened = 0

    def arrive(self, host: str, point: str) -> list[str]:
        """``host`` has arrived at ``point``; returns that point if it is reached now."""
        found = self._open.get(point)
        if found is None:
            self.opened += 1
            found = self._open[point] = _Barrier(len(self._group) - len(self._left))
        if host not in found.here:
            found.here.add(host)
            self._waits[host] = self._waits.get(host, 0) + 1
            found.missing -= host in self._group and host not in self._left
        return self._reached([point])

    def left(self, host: str) -> list[str]:
        """``host`` will arrive at no barrier any more; returns the points that are reached without it."""
        if host in self._left or host not in self._group:
            return []
        self._left.add(host)
        for found in self._open.values():
            found.missing -= host not in found.here
        return self._reached(list(self._open))

    def awaited(self) -> set[str]:
        """Who is missing at a barrier where another host waits."""
        return {host for found in self._open.values() for host in self._group - self._left - found.here}

    def waits(self, host: str) -> int:
        """At how many points ``host`` waits."""
        return self._waits.get(host, 0)

    def _reached(self, points: list[str]) -> list[str]:
        reached = [point for point in points if not self._open[point].missing]
        for point in reached:
            for host in self._open.pop(point).here:
                self._waits[host] -= 1
        return reached


class LeadersBarriers(LeaderHalf, Barriers):
    """Counts who has arrived, and tells all hosts."""

    def begin(self) -> None:
        self._waits = WhoWaits(self._side.group)

    def arrive(self, point: str) -> None:
        self._reached(self._waits.arrive(self._side.me, point))

    def hear(self, host: str, message: Arrive) -> None:
        if self._waits.waits(host) >= MOST_OPEN:
            raise WireError(f"that it waits at more than {MOST_OPEN} points")
        if self._waits.opened >= MOST_EVER:
            raise WireError(f"one of more than {MOST_EVER} points")
        self._reached(self._waits.arrive(host, message.point))

    def awaits(self) -> set[str]:
        return self._waits.awaited()

    def left(self, host: str) -> None:
        self._reached(self._waits.left(host))

    def _reached(self, points: list[str]) -> None:
        for point in points:
            self._side.emit(Arrived(point))
            self._side.broadcast(Arrived(point))


class WorkersBarriers(WorkerHalf, Barriers):
    """Tells the leader; without one it waits for nobody."""

    def begin(self) -> None:
        self._points: list[str] = []
        self._reached = 0

    def arrive(self, point: str) -> None:
        if self._side.is_alone:
            self._side.emit(Arrived(point))
            return
        self._points.append(point)
        self._side.post(Arrive(point))

    def hear(self, message: Arrived, size: int) -> None:
        if message.point in self._points:
            self._points.remove(message.point)
        self._reached += 1
        if self._reached > 2 * MOST_EVER:  # the leader doesn't count its own barriers
            raise WireError(f"more than {2 * MOST_EVER} points")
        self._side.emit(message)

    def awaits_leader(self) -> bool:
        return bool(self._points)

    def alone(self) -> None:
        points, self._points = self._points, []
        for point in points:
            self._side.emit(Arrived(point))


TOPIC: Topic[Barriers] = Topic("barriers", (Arrive,), (Arrived,), LeadersBarriers, WorkersBarriers)
