"""Checks fields of JSON objects and variables. An error is one sentence: where it is, its value, what was expected."""

from __future__ import annotations

import json
import os
from typing import Any, Iterable, Mapping

from musterpoint.base.errors import UsageError
from musterpoint.base.executables import LONGEST_WORD, size_of
from musterpoint.base.readers import MOST_COUNTED
from musterpoint.base.untrusted import checked, open_regular

_SHOWN = 80
LONGEST_PATH = 4096
LONGEST_NAME = 255
"""Characters of a group's name, or of a channel's, which is a directory's."""
LONGEST_HOST = 253
"""Characters of a name that a resolver accepts."""
_SMALL = 1 << 20
LARGEST_FILE = 64 << 20
"""Bytes of a configuration file: far more than any platform sends."""
_BOM = b"\xef\xbb\xbf"
"""Byte order mark: some editors begin a UTF-8 file with it. The codec ``utf-8-sig`` would be one more import."""


def shown(value: Any) -> str:
    """``value`` as JSON, shortened, for an error message."""
    try:
        text = json.dumps(value)
    except RecursionError:
        return "a deeply nested value"
    return text if len(text) <= _SHOWN else text[: _SHOWN - 3] + "..."


def wrong(where: str, value: Any, expected: str) -> UsageError:
    """The error for ``value`` found at ``where`` (a file and key, or a variable)."""
    return UsageError(f"{where} is {shown(value)}, expected {expected}")


def parse(text: str, where: str) -> Any:
    """The JSON value that ``text`` is.

    Raises:
        UsageError: it isn't JSON, or has what no text or number of a job can be.
    """
    try:
        return checked(json.loads(text), numbers=False)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{where} isn't valid JSON: {error}") from None


def load(path: str) -> Any:
    """The decoded JSON file at ``path``.

    Raises:
        UsageError: it can't be read, is not a regular file, is too long, isn't UTF-8 or isn't JSON.
    """
    try:
        with open(path, "rb", opener=open_regular) as file:
            data = file.read(LARGEST_FILE + 1)
        if len(data) > LARGEST_FILE:
            raise UsageError(f"{path} is longer than {LARGEST_FILE >> 20} MiB, expected a configuration file")
        text = data.removeprefix(_BOM).decode()
    except OSError as error:
        raise UsageError(f"{path} can't be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise UsageError(f"{path} isn't UTF-8: {error.reason} at byte {error.start}") from None
    return parse(text, path)


def mapping(value: Any, where: str) -> dict[str, Any]:
    """``value``, which must be a JSON object."""
    if not isinstance(value, dict):
        raise wrong(where, value, "an object")
    return value


def text(value: Any, where: str) -> str:
    """``value``, which must be a string without NUL that fits in one argument; null counts as empty."""
    if value is None:
        return ""
    if not isinstance(value, str):
        raise wrong(where, value, "a string")
    if "\0" in value:
        raise wrong(where, value, "a string without NUL characters")
    if size_of(value) > LONGEST_WORD:
        raise wrong(where, value, f"at most {LONGEST_WORD:,} bytes")
    return value


def path(value: Any, where: str) -> str:
    """``value``, which must be a path or command of at most :data:`LONGEST_PATH` characters; null counts as empty."""
    words = text(value, where)
    if len(words) > LONGEST_PATH:
        raise wrong(where, value, f"a path of at most {LONGEST_PATH:,} characters")
    return words


def host(value: Any, where: str) -> str:
    """``value``, which must be a host name (letters, digits, ``.``, ``_``, ``-``) or an address."""
    allowed = isinstance(value, str) and all(c.isascii() and (c.isalnum() or c in "._-:") for c in value)
    if not allowed or not value or value[0] in ".-" or len(value) > LONGEST_HOST:
        raise wrong(where, value, "a host name such as algo-1")
    return str(value)


def host_list(value: Any, where: str) -> tuple[str, ...]:
    """``value``, which must be a list of different host names, in the order it has them."""
    if not isinstance(value, list):
        raise wrong(where, value, 'a list of host names such as ["algo-1", "algo-2"]')
    return each_once((host(entry, f"{where}[{index}]") for index, entry in enumerate(value)), where)


def each_once(hosts: Iterable[str], where: str) -> tuple[str, ...]:
    """``hosts``, of which none may stand there twice."""
    names = tuple(hosts)
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise UsageError(f"{where} has {name} more than once; each host must stand there once")
        seen.add(name)
    return names


def count(value: Any, where: str, least: int = 1, most: int = MOST_COUNTED) -> int:
    """``value``, which must be a whole number, ``least`` to ``most`` (digits in a string will do)."""
    if isinstance(value, str) and value.isascii() and value.isdecimal() and len(value) < 10:
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise wrong(where, value, f"a whole number, {least} to {most}")
    return value


def flag(value: Any, where: str) -> bool:
    """``value``, which must be a truth value: a boolean, 0, 1, null, or ``True``/``False`` as Python's str() spells."""
    if value is None or value == "":
        return False
    spelled = value.lower() if isinstance(value, str) else value
    if spelled in (True, "true", "1"):
        return True
    if spelled in (False, "false", "0"):
        return False
    raise wrong(where, value, "true or false")


def first_set(environ: Mapping[str, str], names: Iterable[str]) -> str:
    """The first of the variables ``names`` that is set and not empty; empty where none is."""
    return next((name for name in names if environ.get(name)), "")


def is_loopback(name: str) -> bool:
    """Whether every machine calls itself by this name or address."""
    return name == "localhost" or name.startswith("127.") or name == "::1"


def small_text(path: str) -> str:
    """The first MiB of a regular file; empty where it can't be read, as in a container that hasn't got it."""
    try:
        with open(path, encoding="utf-8", errors="replace", opener=open_regular) as file:
            return file.read(_SMALL)
    except (OSError, ValueError):
        return ""


def node_name() -> str:
    """This machine's own name (Windows has no ``uname``)."""
    return (os.uname().nodename if hasattr(os, "uname") else "") or "localhost"
