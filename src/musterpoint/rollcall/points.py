"""Points at which the hosts of the group wait for one another."""

from __future__ import annotations

from typing import Callable, Iterable


class Points:
    """Who has arrived where. ``group`` are the hosts that must."""

    def __init__(self, group: Iterable[str]) -> None:
        self._group = frozenset(group)
        self._arrived: dict[str, set[str]] = {}

    def arrive(self, host: str, point: str) -> None:
        self._arrived.setdefault(point, set()).add(host)

    def complete(self, is_through: Callable[[str], bool]) -> list[str]:
        """The points that nobody is missing at any more, each once. Hosts that are through are not waited for."""
        reached = [point for point, here in self._arrived.items() if all(map(is_through, self._group - here))]
        for point in reached:
            del self._arrived[point]
        return reached
