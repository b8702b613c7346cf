"""Which hosts print nothing, and where their ranks are, as the leader collects it; no I/O.

When every host that still runs ranks is quiet, all are asked to look at their ranks at the same time.
"""

from __future__ import annotations

from typing import Iterable, NamedTuple, Union

from musterpoint.position import Position


class Look(NamedTuple):
    """Ask every host to look at its ranks."""


class Looked(NamedTuple):
    """All hosts have looked. ``positions`` are those of all ranks; None: a host has printed something meanwhile."""

    positions: tuple[Position, ...] | None


QuietDecision = Union[Look, Looked]


class QuietHosts:
    """``hosts``: those whose ranks are waited for."""

    def __init__(self, hosts: Iterable[str]) -> None:
        self._running = set(hosts)
        self._quiet: set[str] = set()
        self._found: dict[str, tuple[Position, ...] | None] | None = None

    def quiet(self, host: str, on: bool) -> list[QuietDecision]:
        """``host`` has printed nothing for the stall timeout, or (``on`` is false) prints again."""
        if host in self._running:
            (self._quiet.add if on else self._quiet.discard)(host)
        return self._next()

    def looked(self, host: str, positions: tuple[Position, ...] | None) -> list[QuietDecision]:
        """``host`` answers a :class:`Look`; an answer to none is dropped."""
        if self._found is not None and host in self._running:
            self._found[host] = positions
        return self._next()

    def left(self, host: str) -> list[QuietDecision]:
        """``host`` runs no ranks any more."""
        self._running.discard(host)
        self._quiet.discard(host)
        if self._found is not None:
            self._found.pop(host, None)
        return self._next()

    def _next(self) -> list[QuietDecision]:
        if self._found is None:
            if not self._running or self._quiet < self._running:
                return []
            self._found = {}
            return [Look()]
        if self._found.keys() < self._running:
            return []
        found, self._found = list(self._found.values()), None
        self._quiet.clear()
        if not found:
            return []
        positions = None if None in found else tuple(one for each in found for one in each or ())
        return [Looked(positions)]
