"""The end of a stream, kept for the failure reason: its last bytes, and the beginnings of its last tracebacks."""

from __future__ import annotations

import mmap

SIZE = 64 << 10
"""Bytes kept of the end of a stream."""
HEAD = 16 << 10
"""Bytes kept from where a traceback begins: its frames, the exception and the first lines of the message."""
HEADS = 4
"""How many tracebacks keep their beginning: the last one may be a launcher's own, or another rank's."""
BEFORE = 512
"""Bytes kept before a traceback: its rank tag, or the line that names its process."""
_HEADER = b"Traceback (most recent call last)"
_SEAM = len(_HEADER) - 1
_RECENT = BEFORE + _SEAM


class Tail:
    """A ring of ``size`` bytes, and the beginnings of the last tracebacks, which may be longer than the ring.

    Pages of the ring are touched only when something is written. Not locked: the pump feeds and reads it under its own
    lock. ``total``: how many bytes came in all.
    """

    __slots__ = ("_end", "_filled", "_heads", "_map", "_recent", "_size", "total")

    def __init__(self, size: int = SIZE) -> None:
        # private where there is a choice: shared anonymous pages would stay visible in every forked child
        private = getattr(mmap, "MAP_PRIVATE", 0) | getattr(mmap, "MAP_ANONYMOUS", 0)
        self._map = mmap.mmap(-1, size, flags=private) if private else mmap.mmap(-1, size)
        self._size = size
        self._end = 0
        self._filled = False
        self.total = 0
        self._recent = b""
        self._heads: list[tuple[int, bytearray]] = []  # where in the stream each begins, and its bytes

    def feed(self, data: memoryview) -> None:
        """Appends ``data``; the oldest bytes that no longer fit are dropped."""
        new = bytes(data)
        self._keep_heads(new)
        self.total += len(new)
        self._recent = new[-_RECENT:] if len(new) >= _RECENT else (self._recent + new)[-_RECENT:]
        if len(new) >= self._size:
            self._map[:] = new[-self._size :]
            self._end, self._filled = 0, True
            return
        space = self._size - self._end
        if len(new) < space:
            self._map[self._end : self._end + len(new)] = new
            self._end += len(new)
            return
        self._map[self._end :] = new[:space]
        rest = new[space:]
        self._map[: len(rest)] = rest
        self._end, self._filled = len(rest), True

    def text(self) -> bytes:
        """The bytes kept, oldest first; where some are missing in between, a line says how many."""
        newest = self._map[: self._end]
        ring = self._map[self._end :] + newest if self._filled else newest
        begin = self.total - len(ring)
        heads = [head for head in self._heads if head[0] < begin]
        text, end = bytearray(), 0
        pieces: list[tuple[int, bytes | bytearray]] = [*heads, (begin, ring)]
        for start, kept in pieces if heads else []:
            if text and start > end:
                text += left_out(start - end)
            text += kept[max(0, end - start) :] if text else kept
            end = max(end, start + len(kept))
        return bytes(text) or ring

    def _keep_heads(self, new: bytes) -> None:
        """Finds the tracebacks that begin in ``new``, or across its boundary with earlier bytes."""
        found: list[int] = []
        at = new.rfind(_HEADER)
        while at >= 0 and len(found) < HEADS:
            found.insert(0, at)
            at = new.rfind(_HEADER, 0, at)
        before = self._recent[-_SEAM:]
        seam = (before + new[:_SEAM]).find(_HEADER) if before else -1
        if seam >= 0:
            found = [seam - len(before), *found][-HEADS:]
        if not found and not self._heads:
            return
        # each goes as far as the next one begins, and no further than HEAD
        starts = [max(at - BEFORE, -len(self._recent)) for at in found]
        if self._heads:
            _, last = self._heads[-1]
            last += new[: max(0, HEAD - len(last))]
        for start in starts:
            kept = bytearray(self._recent[start:] if start < 0 else b"")
            kept += new[max(0, start) : start + HEAD]
            self._heads.append((self.total + start, kept))
        del self._heads[:-HEADS]


def left_out(count: int) -> bytes:
    """The line in place of ``count`` dropped bytes."""
    return b"\nmusterpoint: %d bytes are left out here\n" % count
