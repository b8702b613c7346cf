"""musterpoint's own lines: one prefix, one place, never mixed into the middle of a user's line.

They go to stderr. Once the log pump runs they go through it (:meth:`Console.write_through`), so that a reader who
doesn't read our output never holds up the thread that handles signals.
"""

from __future__ import annotations

import os
from typing import Callable

PREFIX = "musterpoint: "


def _write_all(data: bytes) -> None:
    while data:
        try:
            data = data[os.write(2, data) :]
        except OSError:
            return  # nobody to tell


class Console:
    """``mask`` hides secrets in every line; ``sink`` takes finished bytes."""

    def __init__(self, mask: Callable[[str], str] = str, sink: Callable[[bytes], None] = _write_all) -> None:
        self._mask = mask
        self._sink = sink

    def write_through(self, sink: Callable[[bytes], None]) -> None:
        """From now on lines go to ``sink`` instead."""
        self._sink = sink

    def say(self, text: str, mask: Callable[[str], str] | None = None) -> None:
        """One message; further lines of it are indented under the first. ``mask`` stands in for the console's own."""
        first, *rest = (mask or self._mask)(text).splitlines() or [""]
        lines = [PREFIX + first, *(" " * 4 + line for line in rest)]
        self._sink(("\n".join(lines) + "\n").encode("utf-8", "replace"))

    def show(self, text: str) -> None:
        """A line of a program that we run, as it is but for its secrets."""
        self._sink((self._mask(text) + "\n").encode("utf-8", "replace"))
