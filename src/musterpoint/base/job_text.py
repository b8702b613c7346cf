"""A job's file, ``job.toml`` or ``.json``: its text → its keys, and the line where one stands."""

import json
import os
import re
import sys
from typing import Any

from musterpoint.base.errors import UsageError
from musterpoint.base.records import NamedTuple
from musterpoint.base.untrusted import checked, read_regular

_LARGEST = 64 << 20
"""Bytes of a job's file."""
_TABLE = re.compile(r"\s*\[\[?\s*([\w.-]+)\s*\]?\]")


class JobText(NamedTuple):
    """``where``: the file, for messages. ``values``: its keys. ``lines``: its text. ``folder``: the file's."""

    where: str
    values: dict[str, Any]
    lines: tuple[str, ...]
    folder: str = ""

    def place(self, at: int, key: str = "") -> str:
        """The file and line of a role (index ``at``) or its ``key``, for messages."""
        begins = [number for number, line in enumerate(self.lines) if _is_role(line)]
        if at >= len(begins):
            return f"{self.where}, role {at + 1}"
        found = begins[at]
        ends = next((n for n in range(found + 1, len(self.lines)) if _TABLE.match(self.lines[n])), len(self.lines))
        of_key = re.compile(rf"\s*[\"']?{re.escape(key)}[\"']?\s*=")
        line = next((n for n in range(found, ends) if key and of_key.match(self.lines[n])), found)
        return f"{self.where}, line {line + 1}"


def _is_role(line: str) -> bool:
    found = _TABLE.match(line)
    return found is not None and found[1] == "roles" and line.lstrip().startswith("[[")


def read_job_text(text: str, where: str) -> JobText:
    """The keys of ``text``: the path of a file, TOML or ``.json``, or a JSON object itself.

    Raises:
        UsageError: the file can't be read.
    """
    if text.lstrip().startswith("{"):
        return JobText(where, _values(text.encode(), True, where), ())
    try:
        data = read_regular(text, _LARGEST)
    except OSError as error:
        raise UsageError(f"{where}: {error.strerror}") from None
    values = _values(data, text.endswith(".json"), where)
    lines = tuple(data.decode("utf-8", "replace").splitlines())
    return JobText(where, values, lines, os.path.dirname(os.path.abspath(text)))


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


def program_of(text: str) -> tuple[str, tuple[str, ...], bool]:
    """The program of a job's file, its arguments, and whether it is a module; a role has its arguments itself.

    Raises:
        UsageError: the file can't be read, or names no program.
    """
    where = "the job's file" if text.lstrip().startswith("{") else text
    values = read_job_text(text, where).values
    roles = values.get("roles")
    for each in (values, *(roles if isinstance(roles, list) else ())):
        program = (each.get("program") or each.get("module")) if isinstance(each, dict) else None
        if isinstance(program, str):
            own = each.get("arguments") if each is values else None
            arguments = own if isinstance(own, list) else []
            return program, tuple(map(str, arguments)), not each.get("program")
    raise UsageError(f"{where} names no program: give it `program`, or each of its roles")


def found_file(name: str, *folders: str) -> str:
    """The path of the file ``name`` in the first of ``folders`` that has it; empty: none does."""
    paths = [os.path.join(folder, name) for folder in folders if folder]
    return next((path for path in paths if os.path.isfile(path)), "")
