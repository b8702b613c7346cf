"""What is in the code directory, above all for an installer: requirements, a package, a lock, wheels."""

import os
from typing import NamedTuple

from musterpoint.untrusted import open_regular

REQUIREMENTS = "requirements.txt"
SETUP = "setup.py"
PYPROJECT = "pyproject.toml"
LOCK = "uv.lock"
WHEELHOUSE = "wheelhouse"
PART = ".musterpoint.part"
"""Where what is being fetched lies until it is whole."""
LOCAL_JOBS = "muster-jobs"
"""Where ``muster local`` puts what its jobs leave; never part of a source directory."""


def holds_something(folder: str) -> bool:
    """Whether there is anything in ``folder`` but what an interrupted fetch left."""
    try:
        return any(name != PART for name in os.listdir(folder))
    except OSError:
        return False


def may_want_packages(folder: str) -> bool:
    """Whether there is a file that an installer reads."""
    return any(os.path.isfile(os.path.join(folder, name)) for name in (REQUIREMENTS, SETUP, PYPROJECT))


class Project(NamedTuple):
    """The names of files, each empty where there is none.

    ``requirements``: the list of requirements.
    ``package``: says how the code is built as a package.
    ``listed``: the ``pyproject.toml`` of a project that isn't built, but lists what it depends on.
    ``lock``: uv's.
    ``wheelhouse``: a directory (absolute) of packages to install from, without any index.
    ``backend``: the module that builds the package.
    """

    requirements: str = ""
    package: str = ""
    listed: str = ""
    lock: str = ""
    wheelhouse: str = ""
    backend: str = "setuptools"

    @property
    def wants_something(self) -> bool:
        return bool(self.requirements or self.package or self.listed)

    @property
    def names(self) -> str:
        """The files, for people."""
        return " and ".join(filter(None, (self.package, self.requirements or self.listed)))


def project_in(code: str, input_data: str = "") -> Project:
    """What is in the directory ``code``. Wheels may also come by the input channel ``wheelhouse``.

    A ``pyproject.toml`` makes a package of the code only with a table ``[build-system]``: many have one for their tools
    alone. Without it, but with ``[project]``, what it depends on is installed, as ``uv`` has it.
    """
    built, listing, backend = _pyproject(code)
    requirements = _there(code, REQUIREMENTS)
    package = _there(code, SETUP) or (PYPROJECT if built else "")
    lock = _there(code, LOCK) if built or listing else ""
    listed = PYPROJECT if listing and not package and not requirements else ""
    if not (requirements or package or listed):
        return Project()
    return Project(requirements, package, listed, lock, _wheelhouse(code, input_data), backend)


def _there(code: str, name: str) -> str:
    return name if os.path.isfile(os.path.join(code, name)) else ""


def _pyproject(code: str) -> tuple[bool, bool, str]:
    """Whether there are the tables [build-system] and [project], and what builds the package.

    No TOML reader came with Python before 3.11; three lines are all that is looked for.
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
