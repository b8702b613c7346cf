"""The leader's processor in a simulation: what it does takes time, and what comes meanwhile waits.

What Python does is measured while it runs (or has a fixed price); what the kernel and the event loop would do beside it
has the prices of :class:`Costs`, which ``scripts/simulate`` measures with real sockets.
"""

from __future__ import annotations

import heapq
import time
from collections import deque
from typing import Any, Callable, NamedTuple

from musterpoint.base.loop import Timer

from .simulated_network import Clock, Machine, Network, SimulatedLoop, SimulatedSocket, _nothing

MOST_READY = 1023
"""Descriptors that one wait returns: what ``select.epoll`` asks for."""


class Costs(NamedTuple):
    """Seconds of the leader's processor.

    ``accept``: taking a connection and watching it. ``receive``: from the wait that says that there is something to the
    bytes. ``send`` and ``byte``: one call, and what each byte adds. ``timer``: setting one and its call. ``close``.
    ``step``: one call of Python code; None: it is measured as it runs.
    """

    accept: float = 12e-6
    receive: float = 3e-6
    send: float = 5e-6
    byte: float = 0.4e-9
    timer: float = 1e-6
    close: float = 6e-6
    step: float | None = 20e-6


class Processor:
    """``spent``: seconds of work so far. Between :meth:`leave` and :meth:`enter` the simulation itself works."""

    def __init__(self, costs: Costs) -> None:
        self.costs = costs
        self.spent = 0.0
        self._used = 0.0
        self._since: float | None = None
        self._look = _price_of_a_look()

    def begin(self) -> None:
        self._used = self.costs.step or 0.0
        self.enter(0.0)

    def end(self) -> float:
        """How long the work took that began last."""
        self.leave()
        self.spent += self._used
        return self._used

    def leave(self) -> None:
        if self._since is not None:
            self._used += max(0.0, time.thread_time() - self._since - self._look)
            self._since = None

    def enter(self, price: float) -> None:
        """The work goes on, after something that has a ``price``."""
        self._used += price
        if self.costs.step is None:
            self._since = time.thread_time()

    def pause(self) -> float:
        """Other work may begin meanwhile. Seconds of what began last."""
        self.leave()
        return self._used

    def go_on(self, used: float, waited: float) -> None:
        """The work before goes on: ``used`` seconds after its beginning, ``waited`` of them without work."""
        self._used = used
        self.spent -= waited
        self.enter(0.0)

    @property
    def used(self) -> float:
        """Seconds since the work began."""
        running = 0.0 if self._since is None else time.thread_time() - self._since - self._look
        return self._used + max(0.0, running)


def _price_of_a_look() -> float:
    """Seconds that two looks at the processor's time take, one of which is within what is measured."""
    began = time.thread_time()
    for _ in range(1000):
        time.thread_time()
    return (time.thread_time() - began) / 1000


class BusyLoop(SimulatedLoop):
    """The leader's loop: one thing after another, each for as long as the ``processor`` needs."""

    def __init__(self, clock: Clock, costs: Costs) -> None:
        super().__init__(clock)
        self.processor = Processor(costs)
        self._began: float | None = None
        self._free_at = 0.0
        self._waiting: deque[Callable[[], Any]] = deque()
        self._due: list[tuple[float, int, Callable[[], Any]]] = []
        self._ready: set[int] = set()
        self._planned = False
        self._in_a_row = 0
        self.clock = self.now

    def now(self) -> float:
        return self._simulation.now if self._began is None else self._began + self.processor.used

    def ready(self, fd: int) -> None:
        if fd not in self._ready and not self.dead:
            self._ready.add(fd)
            self._add(lambda: self._read(fd))

    def _read(self, fd: int) -> None:
        self._ready.discard(fd)
        self.processor.leave()
        self.processor.enter(self.processor.costs.receive)
        self._readers.get(fd, _nothing)(1)

    def do(self, call: Callable[[], Any], turn: int = 0, when: float = 0.0) -> None:
        if self.dead:
            return
        if turn:  # what is due comes after what can be read, as in the real loop
            heapq.heappush(self._due, (when, next(self._order), call))
            self._plan()
        else:
            self._add(call)

    def call_at(self, when: float, call: Callable[[], None]) -> Timer:
        self.processor.leave()
        timer = super().call_at(when, call)
        self.processor.enter(self.processor.costs.timer)
        return timer

    def turn(self, longest: float | None = None) -> None:
        """A leader that waits within a call: what comes is done, up to what one wait of the kernel returns."""
        used = self.processor.pause()
        outer, self._began = self._began, None
        self._free_at = (outer or 0.0) + used
        until = self._free_at + (longest if longest is not None else 60.0)
        self._simulation.at(until, _nothing)
        done = 0
        while done < MOST_READY and self._simulation.now < until:
            before = len(self._waiting) + len(self._due)
            self._simulation.step()
            done += before > len(self._waiting) + len(self._due)
            if done and not self._waiting:
                break
        self._began = outer
        waited = max(used, self._free_at - (outer or 0.0), self._simulation.now - (outer or 0.0))
        self.processor.go_on(waited, waited - used)

    def _add(self, call: Callable[[], Any]) -> None:
        self._waiting.append(call)
        self._plan()

    def _plan(self) -> None:
        if not self._planned:
            self._planned = True
            self._simulation.at(max(self._free_at, self._simulation.now), self._work)

    def _work(self) -> None:
        self._planned = False
        if self._began is not None or self.dead:
            return
        if self._waiting and not (self._due and self._in_a_row > MOST_READY):
            self._in_a_row += 1
            call = self._waiting.popleft()
        elif self._due:
            call = heapq.heappop(self._due)[2]
        else:
            return
        if not self._due:
            self._in_a_row = 0
        self._began = self._simulation.now
        self.processor.begin()
        call()
        self._free_at = self._began + self.processor.end()
        self._began = None
        self.turned()
        if self._waiting or self._due:
            self._plan()


class LeaderSocket(SimulatedSocket):
    """The leader's end of a connection: each use has its price."""

    def __init__(self, network: Network, machine: Machine, worker: str) -> None:
        super().__init__(network, machine, worker)
        loop = machine.loop
        assert isinstance(loop, BusyLoop)
        self._processor = loop.processor

    def send(self, data: bytes | memoryview) -> int:
        costs = self._processor.costs
        self._processor.leave()
        self._processor.enter(costs.send + costs.byte * len(data))
        self._processor.leave()
        sent = super().send(data)
        self._processor.enter(0.0)
        return sent

    def recv(self, most: int) -> bytes:
        self._processor.leave()
        try:
            return super().recv(most)
        finally:
            self._processor.enter(0.0)

    def close(self) -> None:
        self._processor.leave()
        super().close()
        self._processor.enter(self._processor.costs.close)


class ListeningSocket:
    """The port of the roll call: up to ``backlog`` connections wait there to be taken."""

    NUMBER = 1

    def __init__(self, machine: Machine, backlog: int) -> None:
        self._machine, self._backlog = machine, backlog
        loop = machine.loop
        assert isinstance(loop, BusyLoop)
        self._loop = loop
        self._waiting: deque[tuple[SimulatedSocket, str]] = deque()
        self.closed = False
        self.dropped = 0

    @property
    def is_full(self) -> bool:
        return len(self._waiting) >= self._backlog

    def arrive(self, end: SimulatedSocket, address: str) -> None:
        self._waiting.append((end, address))
        self._loop.ready(self.NUMBER)

    def fileno(self) -> int:
        return -1 if self.closed else self.NUMBER

    def accept(self) -> tuple[SimulatedSocket, tuple[str, int]]:
        processor = self._loop.processor
        processor.leave()
        price = processor.costs.accept
        try:
            if not self._waiting:
                price = 0.0
                raise BlockingIOError
            end, address = self._waiting.popleft()
            if self._waiting:
                self._loop.ready(self.NUMBER)
            if end._inbox:
                self._loop.ready(end.fileno())
            return end, (address, 0)
        finally:
            processor.enter(price)

    def close(self) -> None:
        self.closed = True
