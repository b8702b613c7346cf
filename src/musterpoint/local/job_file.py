"""A job's file: the options of ``muster local``, its program and arguments, as TOML or JSON.

::

    program = "train.py"
    arguments = ["--epochs", "3"]
    hosts = 2
    launcher = "ranks"
    channel = { train = "data" }

Paths start from the file's own directory. What the command line gives goes before it.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any, Mapping, NamedTuple

from musterpoint.base.errors import UsageError
from musterpoint.base.toml import tomllib
from musterpoint.base.untrusted import checked, read_regular
from musterpoint.local.words import to_words

_OWN = ("program", "arguments", "module")

_LARGEST = 64 << 20
"""Bytes of such a file."""


class JobFile(NamedTuple):
    """``options``: words for the command line. ``program``: empty where the file names none; absolute, unless it is a
    ``module``. ``arguments``: the program's own.
    """

    options: tuple[str, ...]
    program: str
    arguments: tuple[str, ...]
    module: bool


def read_job_file(path: str, known: Mapping[str, bool]) -> JobFile:
    """Reads a job's file. ``known``: as in :func:`~musterpoint.local.words.to_words`.

    Raises:
        UsageError: the file can't be read, or a key of it is wrong.
    """
    where = f"-f {path}"
    values = _values(path, where)
    base = os.path.dirname(os.path.abspath(path))
    options = {name: value for name, value in values.items() if name not in _OWN}
    program, module, arguments = (values.get(name) for name in ("program", "module", "arguments"))
    for name, value in (("program", program), ("module", module)):
        if value is not None and (not isinstance(value, str) or not value):
            raise UsageError(f"{where}: {name} is {value!r}, expected a text")
    if program and module:
        raise UsageError(f"{where}: program and module are both given; leave one of them out")
    if not isinstance(arguments, (list, type(None))):
        raise UsageError(f"{where}: arguments is {arguments!r}, expected a list of texts and numbers")
    words = to_words(options, known, where, base)
    return JobFile(
        tuple(words),
        module or (os.path.join(base, program) if program else ""),
        tuple(str(each) for each in arguments or ()),
        bool(module),
    )


def _values(path: str, where: str) -> dict[str, Any]:
    try:
        data = read_regular(path, _LARGEST)
    except OSError as error:
        raise UsageError(f"{where}: {error.strerror}") from None
    try:
        values = checked(json.loads(data) if path.endswith(".json") else _toml(data, where))
    except RecursionError:
        raise UsageError(f"{where}: it is nested too deeply") from None
    except ValueError as error:  # both decoders' errors are
        raise UsageError(f"{where}: it is no {'JSON' if path.endswith('.json') else 'TOML'}: {error}") from None
    if not isinstance(values, dict):
        raise UsageError(f"{where}: a JSON {type(values).__name__}, expected an object of options")
    return values


def _toml(data: bytes, where: str) -> dict[str, Any]:
    if tomllib is None:
        raise UsageError(
            f"{where}: Python {sys.version_info[0]}.{sys.version_info[1]} can't read TOML: install tomli, or name "
            "a .json file with the same keys"
        )
    values: dict[str, Any] = tomllib.loads(data.decode("utf-8"))
    return values
