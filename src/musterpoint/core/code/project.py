"""Finds what an installer needs in the code directory: requirements, a package, a lock, wheels."""

import os
import re
from typing import Iterator, Literal

from musterpoint.base.errors import UsageError
from musterpoint.base.records import NamedTuple
from musterpoint.base.untrusted import open_regular

REQUIREMENTS = "requirements.txt"
SETUP = "setup.py"
PYPROJECT = "pyproject.toml"
LOCK = "uv.lock"
WHEELHOUSE = "wheelhouse"
PART = ".musterpoint.part"
"""The directory of a fetch until it is complete."""
MARK = ".musterpoint-source"
"""The file that says where musterpoint brought the code from."""
MARK_PART = MARK + ".part"
CHANNEL = "code"
"""The input channel in which the SDK sends code: v2 under network isolation, v3 always."""
LOCAL_JOBS = "muster-jobs"
"""The directory with the output of ``muster local``; never part of the code."""


def holds_something(folder: str) -> bool:
    """Whether ``folder`` has anything in it, apart from an interrupted fetch."""
    try:
        return any(name not in (PART, MARK_PART) for name in os.listdir(folder))
    except OSError:
        return False


def may_want_packages(folder: str) -> bool:
    """Whether ``folder`` has something by the name of a file that an installer reads."""
    return any(os.path.lexists(os.path.join(folder, name)) for name in (REQUIREMENTS, SETUP, PYPROJECT))


def unreadable(code: str, *more: str) -> str:
    """The first name of an installer's file that is no file in ``code``, and the word for what it is; or empty."""
    for name in (*filter(None, more), REQUIREMENTS, SETUP, PYPROJECT):
        path = os.path.join(code, name)
        if os.path.lexists(path) and not os.path.isfile(path):
            return f"{name} is {'a folder' if os.path.isdir(path) else 'no file that can be read'}"
    return ""


def requirements_beside(program: str, code: str) -> str:
    """The ``requirements.txt`` in the directory of ``program``, or in ``code``, as a path from there; empty: none."""
    for folder in (os.path.dirname(program), ""):
        if os.path.lexists(os.path.join(code, folder, REQUIREMENTS)):
            return os.path.join(folder, REQUIREMENTS)
    return ""


def requirements_of(asked: str, program: str, code: str, beside: bool) -> str:
    """The list of packages to install, absolute: ``asked``; else with ``beside`` the one beside the program; or empty.

    Raises:
        UsageError: there is no file ``asked``.
    """
    if not asked:
        return requirements_beside(program, code) if beside else ""
    path = os.path.abspath(asked)
    if not os.path.isfile(path):
        why = f"{path} is a folder" if os.path.isdir(path) else f"there is no file {path}"
        raise UsageError(f"--requirements={asked!r}: {why}")
    return path


class Project(NamedTuple):
    """The names of files, each empty where there is none.

    ``requirements``: the list of requirements.
    ``package``: the file that says how the code is built as a package.
    ``listed``: the ``pyproject.toml`` of a project that isn't built, but lists its dependencies.
    ``lock``: uv's lock file.
    ``wheelhouse``: a directory (absolute) of packages to install from, without any index.
    ``backend``: the module that builds the package.
    ``listed_itself``: how the requirements name the directory of the code, if they do.
    """

    requirements: str = ""
    package: str = ""
    listed: str = ""
    lock: str = ""
    wheelhouse: str = ""
    backend: str = "setuptools"
    listed_itself: "Listed" = ""

    @property
    def wants_something(self) -> bool:
        return bool(self.requirements or self.package or self.listed)

    @property
    def names(self) -> str:
        """The files, for people."""
        return " and ".join(filter(None, (self.package, self.requirements or self.listed)))


def project_in(code: str, input_data: str = "", named: str = "") -> Project:
    """The project in the directory ``code``. Wheels may also be in the input channel ``wheelhouse``.

    ``named``: the list of requirements where another than ``requirements.txt`` is asked for (a path from ``code``).

    The code is a package if its ``pyproject.toml`` has a table ``[build-system]``: many have that file for their tools
    alone. With ``[project]`` only, its dependencies are installed, as ``uv`` does.
    """
    built, listing, backend = _pyproject(code)
    requirements = named or _name_if_there(code, REQUIREMENTS)
    package = _name_if_there(code, SETUP) or (PYPROJECT if built else "")
    lock = _name_if_there(code, LOCK) if built or listing else ""
    listed = PYPROJECT if listing and not package and not requirements else ""
    if not (requirements or package or listed):
        return Project()
    itself = _itself(requirements, code) if requirements else ""
    return Project(requirements, package, listed, lock, _wheelhouse(code, input_data), backend, itself)


def _name_if_there(code: str, name: str) -> str:
    return name if os.path.lexists(os.path.join(code, name)) else ""


Listed = Literal["", "as a path", "editable"]
_OPTION = re.compile(r"(-r|-e|--requirement\b|--editable\b)[\s=]*(.*)")
_PLACE = re.compile(r"(?:\S+\s*@\s*)?(?:file:(?://(?:localhost)?(?=/))?)?(.*?)(?:\[[^]]*\])?")
"""A place, which may have a package's name in front and extras behind."""


def _itself(requirements: str, code: str) -> Listed:
    """Finds how the list names the directory ``code``, where relative places begin for an installer."""
    found: Listed = ""
    for option, place in _lines(os.path.join(code, requirements), set()):
        place = re.split(r"\s*[;#]|\s+--", place)[0].strip()
        match = _PLACE.fullmatch(place)
        if match and os.path.realpath(os.path.join(code, match[1] or "?")) == os.path.realpath(code):
            if option:
                return "editable"
            found = "as a path"
    return found


_VARIABLE = re.compile(r"\$\{([A-Z0-9_]+)\}")
"""As pip's lists have variables."""


def _value(found: re.Match[str]) -> str:
    return os.environ.get(found[1], found[0])


def _lines(path: str, seen: set[str]) -> Iterator[tuple[str, str]]:
    """The requirements in ``path`` and in the lists that it includes, each with the option before it."""
    seen.add(os.path.realpath(path))
    try:
        with open(path, encoding="utf-8-sig", errors="replace", opener=open_regular) as file:
            lines = _VARIABLE.sub(_value, file.read().replace("\\\n", " ")).splitlines()
    except OSError:
        return
    for line in map(str.strip, lines):
        match = _OPTION.fullmatch(re.sub(r"(^|\s)#.*", "", line))
        option, rest = match.groups() if match else ("", line)
        if option not in ("-r", "--requirement"):
            yield option, rest
        elif os.path.realpath(included := os.path.join(os.path.dirname(path), rest.strip())) not in seen:
            yield from _lines(included, seen)


def _pyproject(code: str) -> tuple[bool, bool, str]:
    """Whether there are the tables [build-system] and [project], and the module that builds the package.

    Python before 3.11 has no TOML reader, so the three lines are searched for.
    """
    tables, backend = set(), ""
    try:
        with open(os.path.join(code, PYPROJECT), encoding="utf-8", errors="replace", opener=open_regular) as file:
            for line in file:
                text = line.partition("#")[0].replace(" ", "").strip()
                if text.startswith("["):
                    tables.add(text)
                elif text.startswith("build-backend="):
                    backend = text.partition("=")[2].strip("\"'").partition(":")[0].partition(".")[0]
    except OSError:
        pass
    return "[build-system]" in tables, "[project]" in tables, backend or "setuptools"


def _wheelhouse(code: str, input_data: str) -> str:
    for folder in (os.path.join(code, WHEELHOUSE), os.path.join(input_data, WHEELHOUSE) if input_data else ""):
        try:
            if folder and any(name.endswith((".whl", ".tar.gz", ".zip")) for name in os.listdir(folder)):
                return os.path.abspath(folder)
        except OSError:
            continue
    return ""
