"""Commands on PATH, as a shell finds them, and how long the words of a command may be.

``shutil``, which has ``which``, costs 3 ms at import.
"""

from __future__ import annotations

import os
from typing import Iterable, Mapping

from musterpoint.base.posix import resource

SHELLS = frozenset({"sh", "bash", "dash", "ash", "zsh", "ksh", "mksh"})


def find_command(command: str, environ: Mapping[str, str]) -> str:
    """The path of ``command`` on ``environ``'s PATH; empty where it isn't. A name with a slash isn't looked up."""
    if not command or "/" in command or "\0" in command:
        return ""
    for folder in environ.get("PATH", os.defpath).split(os.pathsep):
        candidate = os.path.join(folder or ".", command)
        if os.path.isfile(candidate) and os.access(candidate, os.X_OK):
            return candidate
    return ""


LONGEST_WORD = 128 * 1024 - 1
"""Bytes of one argument, or of one variable with its name."""
_LEAST, _MOST = 128 << 10, 6 << 20
"""Bounds of Linux' limit for all words together, in bytes."""
_POINTER = 8
"""Bytes of each word's address, which count too."""


def size_of(word: str) -> int:
    """Bytes of ``word`` for the system."""
    return len(word) if word.isascii() else len(word.encode("utf-8", "surrogatepass"))


def over_limit(words: Iterable[str]) -> tuple[int, int] | None:
    """Size of ``words`` (arguments, and variables with their names) and the limit, in bytes; None if they fit."""
    taken = sum(size_of(word) + 1 + _POINTER for word in words)
    if taken <= _LEAST:
        return None
    if os.name != "posix":  # Windows: nothing is started there
        return None
    stack = resource.getrlimit(resource.RLIMIT_STACK)[0]
    limit = _MOST if stack == resource.RLIM_INFINITY else max(_LEAST, min(_MOST, stack // 4))
    return (taken, limit) if taken > limit else None
