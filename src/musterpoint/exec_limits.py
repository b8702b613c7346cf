"""How much the system takes when a program is started: one word, and all arguments and variables together.

Source: Linux' ``fs/exec.c`` (``MAX_ARG_STRLEN``; a quarter of the stack's limit, at most 6 MiB).
"""

from __future__ import annotations

from typing import Iterable

LONGEST_WORD = 128 * 1024 - 1
"""Bytes of one argument, or of one variable with its name."""
_LEAST, _MOST = 128 << 10, 6 << 20
_POINTER = 8


def size_of(word: str) -> int:
    """Bytes of ``word`` as the system gets it."""
    return len(word) if word.isascii() else len(word.encode("utf-8", "surrogatepass"))


def too_much(words: Iterable[str]) -> tuple[int, int] | None:
    """The bytes that ``words`` (arguments, and variables with their names) take and the limit; None if they fit."""
    taken = sum(size_of(word) + 1 + _POINTER for word in words)
    if taken <= _LEAST:
        return None
    try:
        import resource
    except ImportError:  # Windows: nothing is started there
        return None
    stack = resource.getrlimit(resource.RLIMIT_STACK)[0]
    limit = _MOST if stack == resource.RLIM_INFINITY else max(_LEAST, min(_MOST, stack // 4))
    return (taken, limit) if taken > limit else None
