"""Handles untrusted input: cuts and escapes text, opens only regular files, checks the types of fields."""

from __future__ import annotations

import errno
import os
import stat
from typing import Any, Mapping

_OF_NAMES = "-_.:0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
_LINE_ENDS = "\u2028\u2029"


def printable(text: str, most: int, lines: bool = False) -> str:
    """``text`` within ``most`` bytes of UTF-8, with an ellipsis where it was cut.

    Control characters, marks that change the direction of writing, and what isn't Unicode are escaped as in
    Python. ``lines``: line ends and tabs stay.
    """
    text = text[: most + 1]
    if not text.isprintable():
        text = "".join(mark if _harmless(mark, lines) else ascii(mark)[1:-1] for mark in text)
    return clip(text, most)


def clip(text: str, most: int) -> str:
    """``text`` within ``most`` bytes of UTF-8, cut at a character, with an ellipsis where something is missing."""
    data = text.encode("utf-8", "replace")
    if len(data) <= most:
        return text
    return data[: most - 3].decode("utf-8", "ignore").rstrip() + "…"


def _harmless(mark: str, lines: bool) -> bool:
    if mark.isprintable() or (lines and mark in "\n\t"):
        return True
    return mark.isspace() and mark > "\x9f" and mark not in _LINE_ENDS


def is_host_name(text: str) -> bool:
    """Whether a host can have this name: letters, digits, ``-``, ``_``, ``.`` and ``:``, 253 characters at most."""
    if not 0 < len(text) <= 253:
        return False
    rest = text.strip(_OF_NAMES)  # fast: empty for nearly every name
    return not rest or all(mark.isalnum() or mark in _OF_NAMES for mark in rest)


_NOT_WAITING = getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0)


def open_regular(path: str, flags: int) -> int:
    """Opens the regular file at ``path`` (links are followed); returns its descriptor.

    Raises:
        OSError: there is none, or it isn't a regular file.
    """
    found = os.stat(path)  # before it is opened: opening a device may do something
    if not stat.S_ISREG(found.st_mode):
        raise OSError(errno.EINVAL, f"it is {_kind(found.st_mode)}, expected a regular file", path)
    fd = os.open(path, flags | _NOT_WAITING)
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise OSError(errno.EINVAL, "it became something else, expected a regular file", path)
    return fd


def open_regular_nofollow(path: str, flags: int) -> int:
    """:func:`open_regular` that doesn't follow a link, which the user's program may have made."""
    return open_regular(path, flags | getattr(os, "O_NOFOLLOW", 0))


def _kind(mode: int) -> str:
    kinds = {
        stat.S_IFDIR: "a directory",
        stat.S_IFIFO: "a named pipe",
        stat.S_IFSOCK: "a socket",
        stat.S_IFCHR: "a device",
        stat.S_IFBLK: "a device",
    }
    return kinds.get(stat.S_IFMT(mode), "no file")


def check_types(row: Any, types: Mapping[str, tuple[type, ...]], what: str = "") -> None:
    """Raises ValueError, beginning with ``what``, for the first field of ``row`` with a wrong type.

    JSON's true and false are no numbers here: ``bool`` must be named to be allowed.
    """
    for name, kinds in types.items():
        found = getattr(row, name)
        if not isinstance(found, kinds) or (isinstance(found, bool) and bool not in kinds):
            raise ValueError(f"{what}{name} is {found!r}")
