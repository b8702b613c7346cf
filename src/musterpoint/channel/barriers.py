"""Barriers at which the hosts of the group wait for one another."""

from __future__ import annotations

from typing import Iterable

MOST_OPEN = 16
"""Barriers at which one host may wait at a time."""
MOST_EVER = 16384
"""Barriers that there may be in all: each launcher that is handed over has one."""
LONGEST = 64
"""Characters of a point."""


class _Point:
    """``missing`` counts the hosts of the group that neither are here nor are through."""

    __slots__ = ("here", "missing")

    def __init__(self, missing: int) -> None:
        self.here: set[str] = set()
        self.missing = missing


class Barriers:
    """Who has arrived where, at how many points ``opened`` so far.

    ``group`` are the hosts that must; those that are :meth:`through` are not waited for.

    What is said here costs the same however many hosts there are.
    """

    def __init__(self, group: Iterable[str]) -> None:
        self._group = frozenset(group)
        self._through: set[str] = set()
        self._open: dict[str, _Point] = {}
        self._waits: dict[str, int] = {}
        self.opened = 0

    def arrive(self, host: str, point: str) -> list[str]:
        """``host`` is at ``point``; that point if nobody is missing there any more."""
        found = self._open.get(point)
        if found is None:
            self.opened += 1
            found = self._open[point] = _Point(len(self._group) - len(self._through))
        if host not in found.here:
            found.here.add(host)
            self._waits[host] = self._waits.get(host, 0) + 1
            found.missing -= host in self._group and host not in self._through
        return self._reached([point])

    def through(self, host: str) -> list[str]:
        """``host`` will arrive nowhere any more; the points that nobody is missing at now."""
        if host in self._through or host not in self._group:
            return []
        self._through.add(host)
        for found in self._open.values():
            found.missing -= host not in found.here
        return self._reached(list(self._open))

    def waits(self, host: str) -> int:
        """At how many points ``host`` is and others are not."""
        return self._waits.get(host, 0)

    def _reached(self, points: list[str]) -> list[str]:
        reached = [point for point in points if not self._open[point].missing]
        for point in reached:
            for host in self._open.pop(point).here:
                self._waits[host] -= 1
        return reached
