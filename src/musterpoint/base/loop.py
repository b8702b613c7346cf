"""The event loop: descriptors, timers, and calls from other threads.

asyncio costs 42 ms at import; this needs ``select`` and ``heapq`` only. Nothing polls: a signal, a dead child, a
datagram and a due timer each wake the one ``poll``.
"""

from __future__ import annotations

import heapq
import os
import select
import time
from typing import Callable

READ = 1
WRITE = 2
_LONGEST_WAIT = 86400.0
"""Seconds of one wait; the kernel takes no more than 24 days. A timer that is due later is waited for again."""


class Timer:
    """A call that is due at ``when`` (monotonic seconds); :meth:`cancel` forgets it."""

    __slots__ = ("call", "when")

    def __init__(self, when: float, call: Callable[[], None]) -> None:
        self.when = when
        self.call: Callable[[], None] | None = call

    def cancel(self) -> None:
        self.call = None

    def __lt__(self, other: Timer) -> bool:
        return self.when < other.when


class Loop:
    """Runs callbacks in one thread. ``clock`` is monotonic seconds and can be faked in tests."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.clock = clock
        self._watched: dict[int, tuple[int, Callable[[int], None]]] = {}
        self._timers: list[Timer] = []
        self._poller = _poller()
        self._stopped = False
        self._posted: list[Callable[[], None]] = []
        self._wake_read = self._wake_write = -1

    def watch(self, fd: int, interest: int, call: Callable[[int], None]) -> None:
        """Calls ``call(ready)`` whenever ``fd`` is ready; ``interest`` and ``ready`` are READ | WRITE.

        Hang-ups and errors count as both, so the reader or writer meets them. Watching again changes the interest.
        """
        self._poller.modify(fd, interest) if fd in self._watched else self._poller.add(fd, interest)
        self._watched[fd] = (interest, call)

    def forget(self, fd: int) -> None:
        """Stops watching ``fd`` (call it before closing). Unknown descriptors are fine."""
        if self._watched.pop(fd, None) is not None:
            self._poller.remove(fd)

    def call_at(self, when: float, call: Callable[[], None]) -> Timer:
        """Calls ``call`` once at ``when`` on this loop's clock."""
        timer = Timer(when, call)
        heapq.heappush(self._timers, timer)
        return timer

    def call_later(self, seconds: float, call: Callable[[], None]) -> Timer:
        return self.call_at(self.clock() + seconds, call)

    def post(self, call: Callable[[], None]) -> None:
        """Runs ``call`` in the loop's thread, soon. The one method that any thread may use."""
        if self._wake_write < 0:
            self.prepare_posts()
        self._posted.append(call)
        try:
            os.write(self._wake_write, b"\0")
        except (BlockingIOError, OSError):
            pass  # the pipe is full: a wake-up is already on its way

    def prepare_posts(self) -> None:
        """Opens the wake-up pipe; call it in the loop's thread before any other thread posts."""
        if self._wake_write < 0:
            self._wake_read, self._wake_write = os.pipe()
            os.set_blocking(self._wake_read, False)
            os.set_blocking(self._wake_write, False)
            self.watch(self._wake_read, READ, self._run_posted)

    def _run_posted(self, _ready: int) -> None:
        try:
            os.read(self._wake_read, 65536)
        except BlockingIOError:
            pass
        # one at a time: if the list were replaced, a call added by another thread could be lost
        while self._posted:
            self._posted.pop(0)()

    def stop(self) -> None:
        """Makes :meth:`run` return after the callbacks of this round."""
        self._stopped = True

    def run(self) -> None:
        """Runs until :meth:`stop`; may be run again after it."""
        self._stopped = False
        while not self._stopped:
            self.turn()
        self._stopped = False  # or later turns would leave timers out

    def turn(self, longest: float | None = None) -> None:
        """One round: waits for the next descriptor or timer (at most ``longest`` seconds), runs what is due."""
        while self._timers and self._timers[0].call is None:
            heapq.heappop(self._timers)
        timeout = longest
        if self._timers:
            due = max(0.0, self._timers[0].when - self.clock())
            timeout = due if timeout is None else min(timeout, due)
        if not self._dispatch(timeout):
            return
        now = self.clock()
        # descriptors that were ready before a timer was due come first, even if this process was paused after the wait
        if not (self._timers and self._timers[0].when <= now) or not self._dispatch(0):
            return
        while self._timers and self._timers[0].when <= now:
            call = heapq.heappop(self._timers).call
            if call is not None:
                call()
            if self._stopped:
                return

    def _dispatch(self, timeout: float | None) -> bool:
        """Calls what is ready within ``timeout`` seconds; false where a call has stopped the loop."""
        for fd, ready in self._poller.wait(timeout):
            watched = self._watched.get(fd)
            if watched is not None:
                watched[1](ready)
            if self._stopped:
                return False
        return True

    def close(self) -> None:
        for fd in (self._wake_read, self._wake_write):
            if fd >= 0:
                self.forget(fd)
                os.close(fd)
        self._wake_read = self._wake_write = -1
        self._poller.close()


class _Epoll:
    def __init__(self) -> None:
        self._epoll = select.epoll()

    def add(self, fd: int, interest: int) -> None:
        self._epoll.register(fd, self._mask(interest))

    def modify(self, fd: int, interest: int) -> None:
        self._epoll.modify(fd, self._mask(interest))

    def remove(self, fd: int) -> None:
        try:
            self._epoll.unregister(fd)
        except OSError:
            pass  # closed before it was forgotten

    def wait(self, timeout: float | None) -> list[tuple[int, int]]:
        ready = []
        # rounded up: epoll waits whole milliseconds, and waking early would spin
        seconds = -1 if timeout is None else min(timeout, _LONGEST_WAIT) + 0.0009
        for fd, mask in self._epoll.poll(seconds):
            broken = mask & (select.EPOLLHUP | select.EPOLLERR)
            got = (READ if mask & select.EPOLLIN or broken else 0) | (WRITE if mask & select.EPOLLOUT or broken else 0)
            ready.append((fd, got))
        return ready

    def close(self) -> None:
        self._epoll.close()

    @staticmethod
    def _mask(interest: int) -> int:
        return (select.EPOLLIN if interest & READ else 0) | (select.EPOLLOUT if interest & WRITE else 0)


class _Select:
    """For systems without epoll (macOS, Windows): fine for the few descriptors such a machine's test has."""

    def __init__(self) -> None:
        self._interest: dict[int, int] = {}

    def add(self, fd: int, interest: int) -> None:
        self._interest[fd] = interest

    modify = add

    def remove(self, fd: int) -> None:
        self._interest.pop(fd, None)

    def wait(self, timeout: float | None) -> list[tuple[int, int]]:
        readers = [fd for fd, interest in self._interest.items() if interest & READ]
        writers = [fd for fd, interest in self._interest.items() if interest & WRITE]
        longest = None if timeout is None else min(timeout, _LONGEST_WAIT)
        got_read, got_write, _ = select.select(readers, writers, [], longest)
        return [
            (fd, (READ if fd in got_read else 0) | (WRITE if fd in got_write else 0))
            for fd in dict.fromkeys(got_read + got_write)
        ]

    def close(self) -> None:
        self._interest.clear()


def _poller() -> _Epoll | _Select:
    return _Epoll() if hasattr(select, "epoll") else _Select()
