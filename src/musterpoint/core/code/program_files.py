"""The source files of the user's program, as a diagnosis reads them."""

from __future__ import annotations

import os
from typing import Iterable, Iterator

from musterpoint.base.untrusted import open_regular

LARGEST = 512 << 10
"""Bytes of a file that is read."""
_MOST_PROGRAMS = 100
"""Python files of the code directory that are read."""


class ProgramFiles:
    """The source files of the user's program. This class has none."""

    directories: tuple[str, ...] = ()
    """Paths of the code directory, which file names in a reason are relative to."""

    def read(self, file: str) -> str | None:
        """The text of a file that a traceback names; None where it can't be read."""
        return None

    def programs(self) -> Iterable[str]:
        """The texts of the Python files in the code directory."""
        return ()


class CodeDirectory(ProgramFiles):
    """The files below ``path``; a relative name is one there. ``copy_of``: the user's own directory, where ``path`` is
    a copy whose files Python names as the user's.
    """

    def __init__(self, path: str, copy_of: str = "") -> None:
        self._path = path
        self.directories = (path, os.path.realpath(path)) if path else ()  # it may be a link, or a mount's name
        if copy_of:
            self.directories += (copy_of,)

    def read(self, file: str) -> str | None:
        """None also for what isn't a regular file, or is too large."""
        try:
            with open(os.path.join(self._path, file), "rb", opener=open_regular) as opened:
                text = opened.read(LARGEST + 1)
        except (OSError, ValueError):
            return None
        return text.decode("utf-8", "replace") if 0 < len(text) <= LARGEST else None

    def programs(self) -> Iterator[str]:
        try:
            names = sorted(name for name in os.listdir(self._path) if name.endswith(".py")) if self._path else []
        except OSError:
            names = []
        for name in names[:_MOST_PROGRAMS]:
            yield self.read(name) or ""
