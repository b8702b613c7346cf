"""Finds the Python that runs the user's program, and what is installed in it.

It may be another one than musterpoint's, so it is started once to answer.
"""

import os
import sys
from typing import Iterable, Iterator, Mapping

from musterpoint.base import executables, probe
from musterpoint.base.errors import UsageError
from musterpoint.base.probe import Ask
from musterpoint.base.records import NamedTuple
from musterpoint.base.settings import OUTER, PYTHON

CONDA_ENVIRONMENT = "SAGEMAKER_JOB_CONDA_ENV"
"""The variable that names a conda environment, or its directory."""

_ACTIVE = ("VIRTUAL_ENV", "CONDA_PREFIX")
"""The variables of an active environment."""
_OF_ENVIRONMENTS = ("pyvenv.cfg", "conda-meta")
_OF_TOOLS = ("pipx_metadata.json", "uv-receipt.toml")
"""The marks of pipx and ``uv tool`` in the environments that they make, each for one tool."""

_HAS = """
import importlib.util, sys
for name in sys.argv[1].split(","):
    try:
        found = importlib.util.find_spec(name)
    except (ImportError, ValueError, AttributeError):
        found = None
    if found:
        print("has", name)
"""


def has_module(interpreter: str, name: str, environ: Mapping[str, str], cwd: str, how: Ask = probe.ask) -> bool:
    """Whether ``interpreter``, started in ``cwd`` with ``environ``, finds the module ``name``. Nothing is imported.

    A dotted name imports its parents. False where the interpreter can't be started.
    """
    return name in modules_among((name,), interpreter, environ, cwd, how)


def modules_among(
    names: Iterable[str], interpreter: str, environ: Mapping[str, str], cwd: str, how: Ask = probe.ask
) -> frozenset[str]:
    """Those of ``names`` that :func:`has_module` would say yes to; the interpreter is started once."""
    status, text = ask(interpreter, _HAS, ",".join(names), environ, cwd, how)
    return frozenset(line.removeprefix("has ") for line in text.splitlines()) if status == 0 else frozenset()


class LauncherModules:
    """The modules that a launcher, which is started without the user's PYTHONPATH, finds in the user's Python.

    Each is asked for once.
    """

    def __init__(self, interpreter: str, environ: Mapping[str, str], how: Ask) -> None:
        self._interpreter, self._how = interpreter, how
        self._environ = {name: value for name, value in environ.items() if name != "PYTHONPATH"}
        self._answers: dict[str, bool] = {}

    def among(self, modules: Iterable[str]) -> frozenset[str]:
        """Those of ``modules`` that are there."""
        asked = tuple(modules)
        unknown = [module for module in asked if module not in self._answers]
        if unknown:
            found = modules_among(unknown, self._interpreter, self._environ, "/", self._how)
            self._answers.update((module, module in found) for module in unknown)
        return frozenset(module for module in asked if self._answers[module])


def ask(
    interpreter: str, script: str, word: str, environ: Mapping[str, str], cwd: str, how: Ask = probe.ask
) -> tuple[int, str]:
    """Exit status and stdout of ``script``, run by ``interpreter`` with one argument; -1 where it can't be run."""
    try:
        answer = how([interpreter, "-c", script, word], environ, cwd, False)
    except (OSError, ValueError):
        return -1, ""
    return -1 if answer.status is None else answer.status, answer.text


class UserEnvironment(NamedTuple):
    """The variables that the user's program sees, and the Python that runs it.

    ``note``: names both Pythons where another one was at hand; else empty.
    """

    environ: Mapping[str, str]
    python: str
    note: str = ""


def user_environment(environ: Mapping[str, str], python: str = "", own: str = "") -> UserEnvironment:
    """Settles the variables of the user's program and its Python, once for the whole job.

    A Python that somebody named goes before (:func:`activated`). Else the active environment's runs the program where
    PATH finds it, it isn't conda's base, and ``own``, the Python of musterpoint, belongs to no project: it is a tool's
    or outside any environment. A launch below another musterpoint has that one's environment, and keeps its Python.

    Raises:
        UsageError: there is no such conda environment.
    """
    own = own or sys.executable
    seen = activated(environ, python)
    if seen.get(PYTHON) or OUTER in environ:
        return UserEnvironment(seen, seen.get(PYTHON) or own)
    named = [(name, _python_of(environ[name])) for name in _ACTIVE if environ.get(name)]
    there = [each for each in named if os.access(each[1], os.X_OK)]
    if not there:
        return UserEnvironment(seen, own)
    on_path = executables.find_command("python", environ)
    # a venv may be active inside a conda environment: PATH says which of them was activated last
    name, active = min(there, key=lambda each: (not _is_beside(each[1], on_path), not _is_beside(each[1], own)))
    if _is_beside(active, own):
        return UserEnvironment(seen, own)
    another = f"; --python or {PYTHON} names another"
    if _is_beside(active, on_path) and not _is_base(active, environ) and not _is_of_project(own):
        note = f"the job's Python is {active}, of the active environment ({name}), and not musterpoint's own, {own}"
        return UserEnvironment(seen, active, note + another)
    note = f"the job's Python is musterpoint's own, {own}, and not {active}, of the environment that {name} names"
    return UserEnvironment(seen, own, note + another)


def _is_beside(one: str, other: str) -> bool:
    """Tells whether two Pythons lie in one folder. (They are links to one file in all environments of a version.)"""
    return bool(one and other) and os.path.realpath(os.path.dirname(one)) == os.path.realpath(os.path.dirname(other))


def _is_base(python: str, environ: Mapping[str, str]) -> bool:
    """Tells whether ``python`` is conda's own, whose environment many shells activate at their start."""
    of_conda = _python_of(environ.get("CONDA_PREFIX", ""))
    named_base = environ.get("CONDA_DEFAULT_ENV") in ("base", "root")
    return (named_base and _is_beside(python, of_conda)) or _has(python, ("condabin",))


def _is_of_project(python: str) -> bool:
    """Tells whether ``python`` is that of an environment that holds more than one tool."""
    return _has(python, _OF_ENVIRONMENTS) and not _has(python, _OF_TOOLS)


def _python_of(prefix: str) -> str:
    return os.path.join(os.path.abspath(prefix), "bin", "python")


def _has(python: str, marks: Iterable[str]) -> bool:
    prefix = os.path.dirname(os.path.dirname(python))
    return any(os.path.exists(os.path.join(prefix, mark)) for mark in marks)


def activated(environ: Mapping[str, str], python: str = "") -> Mapping[str, str]:
    """``environ`` as the user's program sees it, with the program's Python in ``MUSTER_PYTHON``.

    That is the Python of the conda environment that :data:`CONDA_ENVIRONMENT` names, whose commands then come first on
    PATH; else ``python``, the option of that name; else what ``environ`` has already. An environment's own activation
    scripts are not run.

    Raises:
        UsageError: there is no such environment; the message says where it was looked for.
    """
    name = environ.get(CONDA_ENVIRONMENT, "")
    if not name:
        return {**environ, PYTHON: python} if python else environ
    looked_at = []
    for prefix in _prefixes(name, environ):
        if os.access(os.path.join(prefix, "bin", "python"), os.X_OK):
            return _with(environ, name, prefix)
        looked_at.append(prefix)
    raise UsageError(
        f"{CONDA_ENVIRONMENT}={name!r}: there is no such conda environment with a Python in it; looked at "
        + (", ".join(looked_at) or "nothing, since there is no conda on PATH and no CONDA_EXE")
    )


def _with(environ: Mapping[str, str], name: str, prefix: str) -> dict[str, str]:
    commands = os.path.join(prefix, "bin")
    path = environ.get("PATH", os.defpath)
    if path.split(os.pathsep)[0] != commands:
        path = os.pathsep.join((commands, path))
    return {
        **environ,
        "PATH": path,
        "CONDA_PREFIX": prefix,
        "CONDA_DEFAULT_ENV": os.path.basename(name.rstrip("/")),
        PYTHON: os.path.join(commands, "python"),
    }


def _prefixes(name: str, environ: Mapping[str, str]) -> Iterator[str]:
    """Directories that may be the environment ``name``, in conda's order."""
    if "/" in name:
        home = environ.get("HOME", "")
        yield os.path.abspath(os.path.join(home, name[2:]) if name.startswith("~/") else name)
        return
    for variable in ("CONDA_ENVS_DIRS", "CONDA_ENVS_PATH"):
        yield from (os.path.join(folder, name) for folder in environ.get(variable, "").split(os.pathsep) if folder)
    for root in dict.fromkeys(_roots(environ)):
        yield root if name in ("base", "root") else os.path.join(root, "envs", name)
    try:
        with open(os.path.join(environ.get("HOME", "/"), ".conda", "environments.txt"), encoding="utf-8") as file:
            known = [line.strip() for line in file]
    except (OSError, UnicodeDecodeError):
        known = []
    yield from (prefix for prefix in known if os.path.basename(prefix) == name)


def _roots(environ: Mapping[str, str]) -> Iterator[str]:
    """Where conda itself is installed."""
    for variable in ("MAMBA_ROOT_PREFIX", "CONDA_ROOT"):
        if environ.get(variable):
            yield environ[variable]
    on_path = (executables.find_command(name, environ) for name in ("conda", "mamba"))
    for command in (environ.get("CONDA_EXE", ""), *on_path):
        if command:
            yield os.path.dirname(os.path.dirname(os.path.realpath(command)))
    prefix = environ.get("CONDA_PREFIX", "")
    if prefix:
        yield os.path.dirname(os.path.dirname(prefix)) if os.sep + "envs" + os.sep in prefix else prefix
