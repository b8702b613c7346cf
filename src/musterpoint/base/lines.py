"""Reads a descriptor in the loop, by pieces or by lines: what sidecars, and programs that we run, write."""

from __future__ import annotations

import os
from typing import Callable

from musterpoint.base.loop import READ, Loop

PIECE = 65536
"""Bytes read at a time, at most."""
Line = Callable[[str], None]

LONGEST_LINE = 1024 * 1024
"""Bytes after which an unfinished line is cut, between two words if possible, so that no secret is split."""
_BETWEEN = b" \t\r,;\"'|"
_SEARCHED = 64 * 1024
"""Bytes from the end that are searched for such a place."""


class Pieces:
    """Calls ``on_piece`` with each piece that comes through ``fd``, and with an empty one at its end."""

    def __init__(self, loop: Loop, fd: int, on_piece: Callable[[bytes], None]) -> None:
        self._loop, self._fd, self._on_piece = loop, fd, on_piece
        os.set_blocking(fd, False)
        loop.watch(fd, READ, self._ready)

    def _ready(self, _events: int) -> None:
        self.read()

    def read(self) -> bool:
        """Reads one piece; False at the end, or where there is nothing yet."""
        try:
            piece = os.read(self._fd, PIECE)
        except BlockingIOError:
            return False
        if not piece:
            self._loop.forget(self._fd)
        self._on_piece(piece)
        return bool(piece)

    def close(self) -> None:
        self._loop.forget(self._fd)


class Lines:
    """Calls ``on_line`` with each line that comes through ``fd``, without its end; ``on_end`` once, at the end of it.

    :meth:`close` closes ``fd``.
    """

    def __init__(self, loop: Loop, fd: int, on_line: Line, on_end: Callable[[], None] = lambda: None) -> None:
        self._fd, self._on_line, self._on_end = fd, on_line, on_end
        self._part = b""
        self._pieces = Pieces(loop, fd, self._add)

    def _add(self, piece: bytes) -> None:
        if not piece:
            self._on_end()
            return
        *lines, self._part = (self._part + piece).split(b"\n")
        if len(self._part) > LONGEST_LINE:
            end = len(self._part)
            cut = max(self._part.rfind(mark, end - _SEARCHED) for mark in _BETWEEN) + 1 or end
            lines.append(self._part[:cut])
            self._part = self._part[cut:]
        for line in lines:
            self._on_line(line.decode("utf-8", "replace").rstrip("\r"))

    def close(self) -> None:
        """Reads what has been written without waiting for the end: a program's child may keep the other end open."""
        if self._fd < 0:
            return
        self._on_end = lambda: None
        while self._pieces.read():
            pass
        if self._part:
            self._on_line(self._part.decode("utf-8", "replace"))
        self._pieces.close()
        os.close(self._fd)
        self._fd = -1
