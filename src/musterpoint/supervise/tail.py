"""The tail of a stream: its last bytes, kept in pages that are touched only when something is written."""

from __future__ import annotations

import mmap

SIZE = 64 << 10
"""Bytes kept of a stream; what the failure reason is read from."""


class Tail:
    """A ring of ``size`` bytes. Not locked: the pump feeds and reads it under its own lock."""

    __slots__ = ("_end", "_filled", "_map", "_size")

    def __init__(self, size: int = SIZE) -> None:
        # private where there is a choice: shared anonymous pages would stay visible in every forked child
        private = getattr(mmap, "MAP_PRIVATE", 0) | getattr(mmap, "MAP_ANONYMOUS", 0)
        self._map = mmap.mmap(-1, size, flags=private) if private else mmap.mmap(-1, size)
        self._size = size
        self._end = 0
        self._filled = False

    def feed(self, data: memoryview) -> None:
        """Appends ``data``; what no longer fits is forgotten, oldest first."""
        if len(data) >= self._size:
            self._map[:] = bytes(data[-self._size :])
            self._end, self._filled = 0, True
            return
        room = self._size - self._end
        if len(data) < room:
            self._map[self._end : self._end + len(data)] = bytes(data)
            self._end += len(data)
            return
        self._map[self._end :] = bytes(data[:room])
        rest = bytes(data[room:])
        self._map[: len(rest)] = rest
        self._end, self._filled = len(rest), True

    def text(self) -> bytes:
        """The bytes kept, oldest first."""
        newest = self._map[: self._end]
        return self._map[self._end :] + newest if self._filled else newest
