"""Handles untrusted input: cuts and escapes text, opens only regular files, checks the types of fields."""

from __future__ import annotations

import errno
import json
import os
import stat
from typing import Any, Iterator, Mapping, TypeVar, cast

_OF_NAMES = "-_.:0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
_LINE_ENDS = "\u2028\u2029"


def printable(text: str, most: int, lines: bool = False) -> str:
    """``text`` within ``most`` bytes of UTF-8, with an ellipsis where it was cut.

    Control characters, marks that change the direction of writing, and what isn't Unicode are escaped as in
    Python. ``lines``: line ends and tabs stay.
    """
    return clip(_printable(text[: most + 1], lines), most)


def _printable(text: str, lines: bool) -> str:
    if text.isprintable():
        return text
    return "".join(mark if lines and mark in "\n\t" else _escaped(mark) for mark in text)


_Shown = TypeVar("_Shown")


def escaped(value: _Shown, lines: bool = False) -> _Shown:
    """``value`` with every text in it as :func:`printable` shows it: the way to print what others made.

    Tuples (named ones, too), lists and dictionaries are gone through; anything else stays as it is. ``lines``: line
    ends and tabs stay.
    """
    found: Any = value
    if isinstance(found, str):
        found = _printable(found, lines)
    elif isinstance(found, tuple):
        parts = [escaped(each, lines) for each in found]
        found = type(found)(*parts) if hasattr(found, "_fields") else tuple(parts)
    elif isinstance(found, list):
        found = [escaped(each, lines) for each in found]
    elif isinstance(found, Mapping):
        found = {escaped(name): escaped(each, lines) for name, each in found.items()}
    return cast(_Shown, found)


def _escaped(mark: str) -> str:
    return mark if _harmless(mark) else ascii(mark)[1:-1]


def clip(text: str, most: int) -> str:
    """``text`` within ``most`` bytes of UTF-8, cut at a character, with an ellipsis where something is missing."""
    data = text.encode("utf-8", "replace")
    if len(data) <= most:
        return text
    return data[: most - 3].decode("utf-8", "ignore").rstrip() + "…"


def _harmless(mark: str) -> bool:
    return mark.isprintable() or (mark.isspace() and mark > "\x9f" and mark not in _LINE_ENDS)


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


_DEEPEST = 64
"""Of a decoded value: what is in what."""
_LARGEST_NUMBER = 1e308


def checked(value: Any, numbers: bool = True) -> Any:
    """A decoded JSON or TOML value as it is. ``numbers``: all must be finite.

    Raises:
        ValueError: it is nested too deeply, or has half a character (which JSON can spell, and no file can hold) or a
            number that isn't finite or doesn't fit into a float.
    """
    for row in levels(value, _DEEPEST):
        for each in row:
            if isinstance(each, str):
                _check_text(each)
            elif numbers and isinstance(each, (int, float)) and not -_LARGEST_NUMBER <= each <= _LARGEST_NUMBER:
                raise ValueError("it has a number that is none, or is too large")
    return value


def read_json(data: str | bytes, deepest: int = _DEEPEST) -> Any:
    """What the text says.

    Raises:
        ValueError: it is no JSON, or is nested more than ``deepest`` deep.
    """
    try:
        found = json.loads(data)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    for _ in levels(found, deepest):
        pass
    return found


def levels(value: Any, deepest: int) -> Iterator[list[Any]]:
    """The values in a decoded value, level by level, and the keys of its mappings.

    Raises:
        ValueError: they are nested more than ``deepest`` deep.
    """
    row: list[Any] = [value]
    for _ in range(deepest + 1):
        if not row:
            return
        yield row
        below: list[Any] = []
        for each in row:
            if isinstance(each, Mapping):
                below += each
                below += each.values()
            elif isinstance(each, (list, tuple)):
                below += each
        row = below
    if row:
        raise ValueError(f"it is nested more than {deepest} deep")


def _check_text(text: str) -> None:
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise ValueError(f"it has half a character ({ascii(text[error.start])[1:-1]})") from None


def read_regular(path: str, most: int) -> bytes:
    """The content of the regular file at ``path``, which may be ``most`` bytes.

    Raises:
        OSError: it can't be read, is no regular file (a named pipe would make us wait), or is longer.
    """
    with open(path, "rb", opener=open_regular) as file:
        data = file.read(most + 1)
    if len(data) > most:
        raise OSError(errno.EFBIG, f"it is longer than {most >> 20} MiB", path)
    return data


def check_types(row: Any, types: Mapping[str, tuple[type, ...]], what: str = "") -> None:
    """Raises ValueError, beginning with ``what``, for the first field of ``row`` with a wrong type.

    JSON's true and false are no numbers here: ``bool`` must be named to be allowed.
    """
    for name, kinds in types.items():
        found = getattr(row, name)
        if not isinstance(found, kinds) or (isinstance(found, bool) and bool not in kinds):
            raise ValueError(f"{what}{name} is {found!r}")


def same_token(one: str, other: str) -> bool:
    """Compares two tokens in a time that doesn't depend on where they differ.

    As numbers, since the standard library's function for it loads OpenSSL (3 MiB).
    """
    first, second = (text.encode("utf-8", "surrogatepass") for text in (one, other))
    return len(first) == len(second) and not int.from_bytes(first, "big") ^ int.from_bytes(second, "big")
