"""Reads lines from a descriptor in the loop: output of sidecars, and of programs that fetch and install code."""

from __future__ import annotations

import os
from typing import Callable

from musterpoint.loop import READ, Loop

Line = Callable[[str], None]

LONGEST_LINE = 1024 * 1024
"""Bytes after which an unfinished line is cut, between two words if possible, so that no secret is split."""
_BETWEEN = b" \t\r,;\"'|"
_SEARCHED = 64 * 1024
"""Bytes from the end that are searched for such a place."""


class Lines:
    """Calls ``on_line`` with each line that comes through ``fd``, without its end; ``on_end`` once, at the end of it.

    :meth:`close` closes ``fd``.
    """

    def __init__(self, loop: Loop, fd: int, on_line: Line, on_end: Callable[[], None] = lambda: None) -> None:
        self._loop, self._fd, self._on_line, self._on_end = loop, fd, on_line, on_end
        self._part = b""
        os.set_blocking(fd, False)
        loop.watch(fd, READ, self._read)

    def _read(self, _ready: int) -> None:
        self._read_piece()

    def _read_piece(self) -> bool:
        """Reads one piece; False at the end, or where there is nothing yet."""
        try:
            piece = os.read(self._fd, 65536)
        except BlockingIOError:
            return False
        if not piece:
            self._loop.forget(self._fd)
            self._on_end()
            return False
        *lines, self._part = (self._part + piece).split(b"\n")
        if len(self._part) > LONGEST_LINE:
            end = len(self._part)
            cut = max(self._part.rfind(mark, end - _SEARCHED) for mark in _BETWEEN) + 1 or end
            lines.append(self._part[:cut])
            self._part = self._part[cut:]
        for line in lines:
            self._on_line(line.decode("utf-8", "replace").rstrip("\r"))
        return True

    def close(self) -> None:
        """Reads what has been written without waiting for the end: a program's child may keep the other end open."""
        if self._fd < 0:
            return
        self._on_end = lambda: None
        while self._read_piece():
            pass
        if self._part:
            self._on_line(self._part.decode("utf-8", "replace"))
        self._loop.forget(self._fd)
        os.close(self._fd)
        self._fd = -1
