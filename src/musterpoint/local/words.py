"""The options of ``muster local`` as a mapping → the words of its command line.

A caller from Python and a job's file name options as the command line does, without the dashes before them; ``-`` and
``_`` are the same. Numbers and texts are values; ``true`` gives an option that takes none; a list repeats an option
that may be repeated, and is joined with commas elsewhere; a table gives ``channel``, ``env`` and ``metric`` their
``NAME=VALUE``, and ``hyperparameters`` and ``distribution`` their JSON.
"""

from __future__ import annotations

import json
import os
from typing import Any, Mapping

from musterpoint.base.errors import UsageError, similar
from musterpoint.base.settings import removed_flag
from musterpoint.core.data.places import is_path

PAIRS = ("--channel", "--env", "--metric")
OBJECTS = ("--hyperparameters", "--distribution")
OF_FILES = ("--program", "--arguments", "--module")
"""What a job's file has beside options."""
PATHS = ("--source-dir", "--output", "--requirements", "--hosts-file", "--log-dir", "--accelerate-config")


def to_words(options: Mapping[str, Any], known: Mapping[str, bool] | None, where: str, base: str = "") -> list[str]:
    """The words. ``known``: the flags that there are, and whether each takes a value; None: the command itself will
    tell. ``where``: named in errors. ``base``: the directory that relative paths start from; empty: they stay as they
    are.

    Raises:
        UsageError: there is no such option, or its value has a wrong type.
    """
    words: list[str] = []
    for name, value in options.items():
        flag = "--" + name.replace("_", "-")
        takes_value = value is not True if known is None else known.get(flag)
        if takes_value is None:
            raise UsageError(f"{where}: {name} is no option of muster local{_near(flag, known or {})}")
        words += _words(flag, value, takes_value, f"{where}: {name}", base)
    return words


def _words(flag: str, value: Any, takes_value: bool, where: str, base: str) -> list[str]:
    if value is None or value is False:
        return []
    if not takes_value:
        if value is not True:
            raise UsageError(f"{where} is {value!r}, expected true or false")
        return [flag]
    if flag in PAIRS:
        return [word for text in _pairs(flag, value, where, base) for word in (flag, text)]
    if isinstance(value, Mapping):
        if flag not in OBJECTS:
            raise UsageError(f"{where} is a table, expected a text, a number or a list")
        return [flag, json.dumps(value)]
    if isinstance(value, (list, tuple)):
        return [flag, ",".join(_text(each, where) for each in value)]
    text = _text(value, where)
    if flag in PATHS and not (flag in OBJECTS and text.lstrip().startswith(("{", "["))):
        text = os.path.join(base, text)
    return [flag, text]


def _pairs(flag: str, value: Any, where: str, base: str) -> list[str]:
    """``NAME=VALUE`` of a table, or of a list of such texts."""
    if isinstance(value, Mapping):
        pairs = [(str(name), _text(each, f"{where}.{name}")) for name, each in value.items()]
    else:
        texts = [_text(each, where) for each in (value if isinstance(value, (list, tuple)) else [value])]
        if flag == "--env" and any("=" not in text for text in texts):
            return texts
        pairs = [(text.partition("=")[0], text.partition("=")[2]) for text in texts]
    if flag == "--channel":
        pairs = [(name, os.path.join(base, path) if is_path(path) else path) for name, path in pairs]
    return [f"{name}={text}" for name, text in pairs]


def _text(value: Any, where: str) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (str, int, float, os.PathLike)):
        return str(value)
    raise UsageError(f"{where} is {value!r}, expected a text or a number")


def _near(flag: str, known: Mapping[str, bool]) -> str:
    if gone := removed_flag(flag):
        return f": it is gone: {gone}"
    near = similar(flag, (*known, *OF_FILES))
    return f": did you mean {near.removeprefix('--')}?" if near else ""
