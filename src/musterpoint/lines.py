"""A descriptor read by the loop and cut into lines: what programs of ours, and those that get code ready, write."""

from __future__ import annotations

import os
from typing import Callable

from musterpoint.loop import READ, Loop

Line = Callable[[str], None]

LONGEST = 1024 * 1024
"""Bytes after which a line that hasn't ended is cut, where it can be between two words: a secret has to stay whole."""
_BETWEEN = b" \t\r,;\"'|"
_SEARCHED = 64 * 1024


class Lines:
    """Calls ``line`` with each line that comes through ``fd``, without its end; ``ended`` once, when no more can come.

    :meth:`close` closes ``fd``.
    """

    def __init__(self, loop: Loop, fd: int, line: Line, ended: Callable[[], None] = lambda: None) -> None:
        self._loop, self._fd, self._line, self._ended = loop, fd, line, ended
        self._part = b""
        os.set_blocking(fd, False)
        loop.watch(fd, READ, self._read)

    def _read(self, _ready: int) -> None:
        self._read_piece()

    def _read_piece(self) -> bool:
        """One piece; False at the end, or where there is nothing yet."""
        try:
            piece = os.read(self._fd, 65536)
        except BlockingIOError:
            return False
        if not piece:
            self._loop.forget(self._fd)
            self._ended()
            return False
        *lines, self._part = (self._part + piece).split(b"\n")
        if len(self._part) > LONGEST:
            end = len(self._part)
            cut = max(self._part.rfind(mark, end - _SEARCHED) for mark in _BETWEEN) + 1 or end
            lines.append(self._part[:cut])
            self._part = self._part[cut:]
        for line in lines:
            self._line(line.decode("utf-8", "replace").rstrip("\r"))
        return True

    def close(self) -> None:
        """Reads what is there; a program's child that lives on may keep the other end open, and isn't waited for."""
        if self._fd < 0:
            return
        self._ended = lambda: None
        while self._read_piece():
            pass
        if self._part:
            self._line(self._part.decode("utf-8", "replace"))
        self._loop.forget(self._fd)
        os.close(self._fd)
        self._fd = -1
