"""The options of ``muster local`` as a mapping → the words of its command line.

A caller from Python and a job's file name options as the command line does, without the dashes before them; ``-`` and
``_`` are the same. Numbers and texts are values; ``true`` gives an option that takes none; a list repeats an option
that may be repeated, and is joined with commas elsewhere; a table gives ``channel``, ``env`` and ``metric`` their
``NAME=VALUE``, and ``hyperparameters`` and ``distribution`` their JSON.
"""

from __future__ import annotations

import json
import os
from typing import Any, Mapping, NamedTuple

from musterpoint.base import spellings
from musterpoint.base.errors import UsageError, similar
from musterpoint.base.job_text import JobText, first_program, read_job_text, text_of
from musterpoint.base.settings import OPTIONS, removed_flag
from musterpoint.core.data.places import is_path
from musterpoint.core.job.roles import of_file
from musterpoint.local.options import BY_FLAG

OF_FILES = ("--program", "--arguments", "--module")
"""What a job's file has beside options."""
_PATHS = {
    **{option.flag: option.path for option in OPTIONS if option.path},
    **{flag: option.holds for flag, option in BY_FLAG.items() if option.holds in ("file", "object")},
}
"""Options whose values are paths, and of what kind."""
_OWN = ("program", "arguments", "module", "roles")


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
    holds = BY_FLAG[flag].holds if flag in BY_FLAG else "text"
    if holds == "pairs":
        return [word for text in _pairs(flag, value, where, base) for word in (flag, text)]
    if isinstance(value, Mapping):
        if holds != "object":
            raise UsageError(f"{where} is a table, expected a text, a number or a list")
        return [flag, json.dumps(value)]
    if isinstance(value, (list, tuple)):
        return [flag, ",".join(_text(each, where) for each in value)]
    text = _text(value, where)
    return [flag, _from(base, text) if _is_path(flag, text) else text]


def _is_path(flag: str, text: str) -> bool:
    """Tells whether a value is a path: no JSON, no command of PATH, no URI, and no place in words of its own."""
    kind = _PATHS.get(flag)
    if kind == "object":
        return not text.lstrip().startswith(("{", "[", '"'))
    if kind == "command":
        return "/" in text
    return kind is not None and bool(text) and (kind != "place" or "://" not in text)


def _from(base: str, path: str) -> str:
    return os.path.join(base, path) if path else path


def _pairs(flag: str, value: Any, where: str, base: str) -> list[str]:
    """``NAME=VALUE`` of a table, or of a list of such texts."""
    if isinstance(value, Mapping):
        pairs = [(str(name), _text(each, f"{where}.{name}")) for name, each in value.items()]
    else:
        texts = [_text(each, where) for each in (value if isinstance(value, (list, tuple)) else [value])]
        if any("=" not in text for text in texts):
            return texts  # a name alone; where that is wrong, the command line's own words say so
        pairs = [(text.partition("=")[0], text.partition("=")[2]) for text in texts]
    if flag == "--channel":
        pairs = [(name, _from(base, path) if is_path(path) else path) for name, path in pairs]
    return [f"{name}={text}" for name, text in pairs]


def _text(value: Any, where: str) -> str:
    if isinstance(value, (str, int, float, os.PathLike)):
        return text_of(value)
    raise UsageError(f"{where} is {value!r}, expected a text or a number")


def _near(flag: str, known: Mapping[str, bool]) -> str:
    if gone := removed_flag(flag):
        return f": it is gone: {gone}"
    near = spellings.meant(flag, (*known, *OF_FILES)) or similar(flag, (*known, *OF_FILES))
    return f": did you mean {near.removeprefix('--')}?" if near else ""


class JobFile(NamedTuple):
    """What a job's file has.

    ``options``: words for the command line. ``program``: the file's, absolute, or that of its first role; empty:
    there is none. ``arguments``: the program's own. ``roles``: the file, if it has roles; else None.
    """

    options: tuple[str, ...]
    program: str
    arguments: tuple[str, ...]
    module: bool
    roles: JobText | None


def read_job_file(path: str, known: Mapping[str, bool]) -> JobFile:
    """Reads a job's file: the options of ``muster local``, its program and arguments, as TOML or JSON.

    ::

        program = "train.py"
        arguments = ["--epochs", "3"]
        hosts = 2
        launcher = "ranks"
        channel = { train = "data" }

    Paths start from the file's own directory. What the command line gives goes before it. ``known``: as in
    :func:`to_words`.

    Raises:
        UsageError: the file can't be read, or a key of it is wrong.
    """
    where = f"-f {path}"
    text = read_job_text(path, where)
    values = text.values
    base = os.path.dirname(os.path.abspath(path))
    for name, value in values.items():
        tables = isinstance(value, dict) or (isinstance(value, list) and any(isinstance(each, dict) for each in value))
        if name.lower() in ("role", "roles") and name != "roles" and tables:
            raise UsageError(f"{text.where}: [[{name}]] is no table of a job's file: did you mean [[roles]]?")
    options = {name: value for name, value in values.items() if name not in _OWN}
    program, module, arguments = (values.get(name) for name in ("program", "module", "arguments"))
    for name, value in (("program", program), ("module", module)):
        if value is not None and (not isinstance(value, str) or not value):
            raise UsageError(f"{where}: {name} is {value!r}, expected a text")
    if program and module:
        raise UsageError(f"{where}: program and module are both given; leave one of them out")
    if not isinstance(arguments, (list, type(None))):
        raise UsageError(f"{where}: arguments is {arguments!r}, expected a list of texts and numbers")
    words, has_roles = to_words(options, known, where, base), "roles" in values
    if has_roles:
        of_file(text)  # an error of it comes first
    own = module or (os.path.join(base, program) if program else "")
    of_role, _, is_module = first_program({"roles": values.get("roles")})
    return JobFile(
        tuple(words),
        own or of_role,
        tuple(str(each) for each in arguments or ()),
        bool(module) if own else is_module,
        text if has_roles else None,
    )
