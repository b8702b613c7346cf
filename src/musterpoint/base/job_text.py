"""A job's file, ``job.toml`` or ``.json``: its text → its keys, and the line where one stands."""

import json
import os
import re
import sys
from typing import Any, Mapping

from musterpoint.base.errors import UsageError
from musterpoint.base.records import NamedTuple
from musterpoint.base.untrusted import checked, read_regular

_LARGEST = 64 << 20
"""Bytes of a job's file."""
_TABLE = re.compile(r"\s*\[\[?\s*([\w.-]+)\s*\]?\]")
_ROLE = re.compile(r"\s*\[\[\s*roles\s*\]")


class JobText(NamedTuple):
    """``where``: the file, for messages. ``values``: its keys. ``lines``: its text. ``folder``: the file's."""

    where: str
    values: dict[str, Any]
    lines: tuple[str, ...]
    folder: str = ""

    def place(self, at: int, key: str = "") -> str:
        """The file and line of a role (index ``at``) or its ``key``, for messages."""
        begins = [number for number, line in enumerate(self.lines) if _ROLE.match(line)]
        if at >= len(begins):
            return f"{self.where}, role {at + 1}"
        found = begins[at]
        ends = next((n for n in range(found + 1, len(self.lines)) if _TABLE.match(self.lines[n])), len(self.lines))
        of_key = re.compile(rf"\s*[\"']?{re.escape(key)}[\"']?\s*=")
        line = next((n for n in range(found, ends) if key and of_key.match(self.lines[n])), found)
        return f"{self.where}, line {line + 1}"


def is_object(text: str) -> bool:
    """``text`` is JSON itself, and no path."""
    return text.lstrip().startswith("{")


def read_job_text(text: str, where: str = "") -> JobText:
    """The keys of ``text``: the path of a file, TOML or ``.json``, or a JSON object itself. ``where``: for messages.

    Raises:
        UsageError: the file can't be read.
    """
    where = where or ("the job's file" if is_object(text) else text)
    if is_object(text):
        return JobText(where, _values(text.encode(), True, where), ())
    try:
        data = read_regular(text, _LARGEST)
    except OSError as error:
        raise UsageError(f"{where}: {error.strerror}") from None
    lines = tuple(data.decode("utf-8", "replace").splitlines())
    return JobText(where, _values(data, text.endswith(".json"), where), lines, os.path.dirname(os.path.abspath(text)))


def _values(data: bytes, is_json: bool, where: str) -> dict[str, Any]:
    try:
        values = checked(json.loads(data) if is_json else _toml(data, where))
    except RecursionError:
        raise UsageError(f"{where}: it is nested too deeply") from None
    except ValueError as error:  # both decoders' errors are
        raise UsageError(f"{where}: it is no {'JSON' if is_json else 'TOML'}: {error}") from None
    if not isinstance(values, dict):
        raise UsageError(f"{where}: a JSON {type(values).__name__}, expected an object of options")
    return values


def _toml(data: bytes, where: str) -> dict[str, Any]:
    if sys.version_info >= (3, 11):
        import tomllib
    else:  # before, only where the package tomli is; a job's file may then be JSON
        try:
            import tomli as tomllib  # type: ignore[import-not-found]
        except ModuleNotFoundError:
            raise UsageError(
                f"{where}: Python {sys.version_info[0]}.{sys.version_info[1]} can't read TOML: install tomli, or name "
                "a .json file with the same keys"
            ) from None
    values: dict[str, Any] = tomllib.loads(data.decode("utf-8"))
    return values


def text_of(value: Any) -> str:
    """A value of a file as a word of the command line."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def first_program(values: Mapping[str, Any]) -> tuple[str, tuple[str, ...], bool]:
    """The job's program, its arguments, and whether it is a module: the file's, or its first role's; empty: none's."""
    roles = values.get("roles")
    for each in (values, *(roles if isinstance(roles, list) else ())):
        program = (each.get("program") or each.get("module")) if isinstance(each, dict) else None
        if isinstance(program, str):
            own = each.get("arguments") if each is values else None
            return program, tuple(map(str, own if isinstance(own, list) else ())), not each.get("program")
    return "", (), False


def found_file(name: str, *folders: str) -> str:
    """The path of the file ``name`` in the first of ``folders`` that has it; empty: none does."""
    paths = [os.path.join(folder, name) for folder in folders if folder]
    return next((path for path in paths if os.path.isfile(path)), "")
