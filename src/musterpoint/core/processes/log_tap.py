"""A copy of the ranks' output for the program that searches it (``programs/log_matcher``); it never waits for it."""

from __future__ import annotations

import os
import struct
from collections import deque

from musterpoint.base.loop import WRITE, Loop
from musterpoint.base.posix import fcntl
from musterpoint.core.processes.streams import LARGEST_PIPE, Bytes

HEADER = struct.Struct("=dIiI")
"""Monotonic time, stream, rank, bytes; as in ``programs/log_matcher``."""
GAP = 0xFFFFFFFF
MOST_WAITING = 8 << 20
"""Bytes that wait for the program; what comes beyond that is left out, which a frame says."""


class LogTap:
    """Writes frames to ``fd``, the program's stdin, which it owns. Used in the pump's thread only."""

    def __init__(self, fd: int, loop: Loop) -> None:
        self._fd, self._loop = fd, loop
        self._waiting: deque[Bytes] = deque()
        self._size = 0
        self._leaving_out = False
        os.set_blocking(fd, False)
        try:
            fcntl.fcntl(fd, fcntl.F_SETPIPE_SZ, LARGEST_PIPE)
        except (ImportError, AttributeError, OSError):
            pass  # smaller is fine

    def feed(self, now: float, stream: int, rank: int, data: memoryview) -> None:
        """Bytes of a rank's stream that came at ``now``."""
        if self._fd < 0:
            return
        if self._leaving_out and self._size > MOST_WAITING // 2:
            return
        self._leaving_out = self._size + len(data) > MOST_WAITING
        header = HEADER.pack(now, stream, rank, GAP if self._leaving_out else len(data))
        parts: list[Bytes] = [header] if self._leaving_out else [header, data]
        if not self._waiting:
            parts = self._written(parts)
        if self._fd >= 0 and parts:
            copies = [bytes(part) for part in parts]
            self._waiting += copies
            self._size += sum(map(len, copies))
            self._loop.watch(self._fd, WRITE, lambda _ready: self._flush())

    def _flush(self) -> None:
        while self._waiting and self._fd >= 0:
            part = self._waiting.popleft()
            left = self._written([part])
            self._size -= len(part) - sum(map(len, left))
            if left:
                self._waiting.extendleft(left)
                return
        self._loop.forget(self._fd)

    def _written(self, parts: list[Bytes]) -> list[Bytes]:
        """Writes what the pipe takes now; returns what is left."""
        try:
            count = os.writev(self._fd, parts)
        except BlockingIOError:
            return parts
        except OSError:  # the program has ended
            self.close()
            return []
        while parts and count >= len(parts[0]):
            count -= len(parts[0])
            parts = parts[1:]
        return [memoryview(parts[0])[count:], *parts[1:]] if parts else []

    def close(self) -> None:
        """Ends the program's input, with what is still waiting for it."""
        if self._fd >= 0:
            self._loop.forget(self._fd)
            os.close(self._fd)
        self._fd = -1
        self._waiting.clear()
