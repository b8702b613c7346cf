"""When each host is sent a beat, and when connections are checked for silence."""

from __future__ import annotations

from typing import Callable, Iterable

from musterpoint.core.channel.link import Context
from musterpoint.core.channel.session import HostState

ROUNDS = 5
"""Sweeps between two beats of one host, so that the beats of many hosts don't go out at once."""


class Sweeper:
    """Calls ``sweep(now)`` ``ROUNDS`` times a beat until it is stopped.

    ``forgive(seconds, now)`` is called first where this process itself stood still (a frozen container, a suspended
    machine): that time doesn't count as silence.
    """

    def __init__(
        self, context: Context, forgive: Callable[[float, float], None], sweep: Callable[[float], None]
    ) -> None:
        self._loop = context.loop
        self._beat = context.timeouts.beat
        self._forgive = forgive
        self._sweep = sweep
        self._last = self._loop.clock()
        self._stopped = False
        self._timer = self._loop.call_later(self._beat / ROUNDS, self._run)

    def now(self) -> float:
        """The time; if this process stood still before it, ``forgive`` is called first."""
        now = self._loop.clock()
        late = now - self._last - self._beat / ROUNDS
        if late > self._beat:
            self._last = now
            self._forgive(late, now)
        return now

    def stop(self) -> None:
        self._stopped = True
        self._timer.cancel()

    def _run(self) -> None:
        self._last = now = self.now()
        self._sweep(now)
        if not self._stopped:
            self._timer = self._loop.call_later(self._beat / ROUNDS, self._run)


class Beats:
    """:meth:`next` gives each host once in ``ROUNDS`` calls."""

    def __init__(self, hosts: Iterable[HostState] = ()) -> None:
        self._shares: list[dict[HostState, None]] = [{} for _ in range(ROUNDS)]
        self._turn = 0
        for host in hosts:
            self.add(host)

    def add(self, host: HostState) -> None:
        min(self._shares, key=len)[host] = None

    def remove(self, host: HostState) -> None:
        for share in self._shares:
            share.pop(host, None)

    def next(self) -> list[HostState]:
        self._turn = (self._turn + 1) % ROUNDS
        return list(self._shares[self._turn])
