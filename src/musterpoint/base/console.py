"""Prints musterpoint's own lines, with a prefix, to stderr.

Once the log pump runs, lines go through it (:meth:`Console.write_through`): they never split a user's line, and a
reader that doesn't read our output doesn't block the thread that handles signals.
"""

from __future__ import annotations

import os
from typing import Callable

from musterpoint.base.untrusted import printable

PREFIX = "musterpoint: "
_LONGEST = 1024 * 1024


def _write_all(data: bytes) -> None:
    while data:
        try:
            data = data[os.write(2, data) :]
        except OSError:
            return  # stderr is closed


class Console:
    """Our own lines. ``mask`` hides secrets in them, ``sink`` gets their bytes. ``shown``: ``PATH=OTHER``, a directory
    here, and the name by which people find it."""

    def __init__(
        self, mask: Callable[[str], str] = str, sink: Callable[[bytes], None] = _write_all, shown: str = ""
    ) -> None:
        self._mask = mask
        self._sink = sink
        self._here, _, self._there = shown.partition("=")

    def write_through(self, sink: Callable[[bytes], None]) -> Callable[[bytes], None]:
        """Sends lines to ``sink`` from now on; returns where they went before."""
        before, self._sink = self._sink, sink
        return before

    def say(self, text: str, mask: Callable[[str], str] | None = None) -> None:
        """Prints a message; its further lines are indented. ``mask`` replaces the console's own."""
        masked = (mask or self._mask)(text)
        if self._there:
            masked = masked.replace(self._here + os.sep, self._there + os.sep)
        first, *rest = printable(masked, _LONGEST, lines=True).splitlines() or [""]  # it may quote a variable or a file
        lines = [PREFIX + first, *(" " * 4 + line for line in rest)]
        self._sink(("\n".join(lines) + "\n").encode("utf-8", "replace"))

    def show(self, text: str) -> None:
        """Prints a line of a program that we run, with secrets hidden."""
        self._sink((self._mask(text) + "\n").encode("utf-8", "replace"))
