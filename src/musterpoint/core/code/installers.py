"""Makes the commands of pip and uv that install a project into the user's Python."""

from __future__ import annotations

import json
import os
import shutil
from typing import Callable, Mapping

from musterpoint.base import executables, probe
from musterpoint.base.errors import FetchError
from musterpoint.base.probe import Ask
from musterpoint.core.code.interpreter import ask, has_module
from musterpoint.core.code.project import LOCAL_JOBS, PYPROJECT, Project

Command = tuple[tuple[str, ...], dict[str, str]]
"""A command, and the variables to set for it."""

_DEPENDENCIES = """
import json, sys
try:
    import tomllib
except ImportError:
    from pip._vendor import tomli as tomllib
with open(sys.argv[1], "rb") as file:
    print(json.dumps(tomllib.load(file).get("project", {}).get("dependencies", [])))
"""


def pip(
    project: Project, interpreter: str, environ: Mapping[str, str], code: str, build: str, how: Ask = probe.ask
) -> Command:
    """pip's command. The package and the requirements are in one command, so that they are resolved together.

    ``build`` is the directory the package is built from, and ``code`` the one where the command runs.
    """
    words = [interpreter, "-m", "pip", "install", *_from_wheelhouse(project)]
    if project.package:
        words += [build, *_unisolated(project)]
    if project.requirements:
        words += ["-r", project.requirements]
    if project.listed:
        words += _dependencies(interpreter, environ, code, how)
    return tuple(words), {}


def uv(
    project: Project, interpreter: str, environ: Mapping[str, str], code: str, build: str, how: Ask = probe.ask
) -> Command:
    """uv's command: ``uv sync --frozen`` with a lock, else as pip's. Nothing is removed from the user's Python."""
    own = executables.find("uv", environ) or os.path.join(os.path.dirname(interpreter), "uv")
    program = (own,) if os.access(own, os.X_OK) else (interpreter, "-m", "uv")
    if len(program) > 1 and not has_module(interpreter, "uv", environ, "/", how):
        raise FetchError("MUSTER_INSTALLER=uv, but uv is neither on PATH nor in the user's Python: add it to the image")
    if project.lock:
        prefix = ask(interpreter, "import sys; print(sys.prefix)", "", environ, "/", how)[1].strip()
        words = ("sync", "--frozen", "--inexact", "--no-editable", "--python", interpreter, "--project", build)
        return (*program, *words, *_from_wheelhouse(project)), {"UV_PROJECT_ENVIRONMENT": prefix}
    more = [*_from_wheelhouse(project)]
    if project.package:
        more += [build, *_unisolated(project)]
    for listed in filter(None, (project.requirements, project.listed)):
        more += ["-r", listed]
    return (*program, "pip", "install", "--python", interpreter, *more), {}


def without_isolation(
    words: tuple[str, ...], project: Project, interpreter: str, environ: Mapping[str, str], how: Ask = probe.ask
) -> tuple[str, ...]:
    """The command ``words``, but building with the build tools in the user's Python; empty where that wouldn't help."""
    isolated = "--no-build-isolation" in words or project.lock
    if not project.package or isolated or not has_module(interpreter, project.backend, environ, "/", how):
        return ()
    return (*words, "--no-build-isolation")


def build_directory(code: str, folder: str, copied: Callable[[str, str], str] | None = None) -> str:
    """A copy of ``code`` in ``folder`` to build from: builds write files, and ``code`` is the user's own directory.

    ``copied`` copies one file and returns where it went.
    """
    copy = os.path.join(folder, os.path.basename(os.path.realpath(code)) or "code")
    try:
        left_out = shutil.ignore_patterns(LOCAL_JOBS, "__pycache__")
        shutil.copytree(code, copy, symlinks=True, ignore=left_out, copy_function=copied or shutil.copy2)
    except (OSError, shutil.Error) as error:
        raise FetchError(f"the package in {code} can't be copied to be built: {error}") from None
    return copy


def _from_wheelhouse(project: Project) -> list[str]:
    return ["--no-index", "--find-links", project.wheelhouse] if project.wheelhouse else []


def _unisolated(project: Project) -> list[str]:
    """The option to build with the user's build tools, where there is a wheelhouse and it doesn't have them."""
    if not project.wheelhouse:
        return []
    brought = any(name.lower().startswith(project.backend.lower()) for name in os.listdir(project.wheelhouse))
    return [] if brought else ["--no-build-isolation"]


def _dependencies(interpreter: str, environ: Mapping[str, str], code: str, how: Ask) -> list[str]:
    """What the project in ``code`` lists under ``dependencies``."""
    path = os.path.join(code, PYPROJECT)
    status, text = ask(interpreter, _DEPENDENCIES, path, environ, "/", how)
    try:
        listed = json.loads(text) if status == 0 else None
    except ValueError:
        listed = None
    if not isinstance(listed, list) or not all(isinstance(word, str) for word in listed):
        raise FetchError(f"the dependencies in {path} can't be read: is it valid TOML?")
    return ["--", *listed]
