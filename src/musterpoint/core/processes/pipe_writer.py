"""Writes to a pipe in the loop, and never waits for its reader."""

from __future__ import annotations

import os
from collections import deque
from typing import Callable

from musterpoint.base.loop import WRITE, Loop
from musterpoint.core.processes.streams import Bytes, after


class PipeWriter:
    """Writes to the pipe ``fd`` what it takes, now or later. Whoever owns ``fd`` discards before closing it.

    ``waiting``: bytes that the pipe hasn't taken yet. ``on_broken`` is called when a write finds that nobody reads any
    more; what waits is dropped first.
    """

    def __init__(self, loop: Loop, fd: int, on_broken: Callable[[], None] = lambda: None) -> None:
        self._loop, self._fd, self._on_broken = loop, fd, on_broken
        self._parts: deque[Bytes] = deque()
        self.waiting = 0
        os.set_blocking(fd, False)

    def write(self, *parts: Bytes) -> None:
        """Writes all ``parts``, after what waits."""
        left = list(parts)
        if not self._parts:
            left = self._written(left)
        if left:
            copies = [bytes(part) for part in left]
            self._parts += copies
            self.waiting += sum(map(len, copies))
            self._loop.watch(self._fd, WRITE, lambda _ready: self._flush())

    def _flush(self) -> None:
        while self._parts:
            part = self._parts.popleft()
            left = self._written([part])
            self.waiting -= len(part) - sum(map(len, left))
            if left:
                self._parts.extendleft(left)
                return
        self.discard()

    def _written(self, parts: list[Bytes]) -> list[Bytes]:
        """Writes what the pipe takes now; returns what is left."""
        try:
            return after(parts, os.writev(self._fd, parts))
        except BlockingIOError:
            return parts
        except OSError:
            self.discard()
            self._on_broken()
            return []

    def discard(self) -> None:
        """Drops what waits."""
        self._loop.forget(self._fd)
        self._parts.clear()
        self.waiting = 0
