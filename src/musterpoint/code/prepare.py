"""From the job's entry point to a workspace: the user's code on this host and the argv that starts it."""

from __future__ import annotations

import os
from typing import Mapping

from musterpoint.code.entry import find
from musterpoint.code.workspace import Workspace
from musterpoint.errors import FetchError, UsageError
from musterpoint.job.model import Job

LOCAL_JOBS = "muster-jobs"
"""Where ``muster local`` puts what its jobs leave; never part of a source directory."""


def prepare(job: Job, environ: Mapping[str, str], interpreter: str) -> Workspace:
    """Where the user's code is and how it is started by ``interpreter``, the user's Python.

    The code directory as it is goes first where something is in it; else a local source directory or file is copied
    there, as sagemaker-training does. The program's arguments are the job's.

    Raises:
        UsageError: the program isn't there; the message says what is.
        FetchError: the source isn't on this host.
    """
    program = job.entry_point.program
    if not program:
        raise UsageError(
            "the job names no program to run: set the hyperparameter sagemaker_program (SDK v2: entry_point) or the "
            "variable SAGEMAKER_PROGRAM to a path in the source directory, such as train.py"
        )
    folder = _folder(job)
    start = find(program, job.entry_point.module, folder, interpreter, environ)
    return Workspace(
        kind=start.kind,
        program=program,
        argv=(*start.words, *job.arguments),
        cwd=folder,
        interpreter=interpreter,
        pythonpath=(folder,),
    )


def _folder(job: Job) -> str:
    """The directory the program runs in."""
    source, code = job.entry_point.source, job.paths.code
    if not source or source == code or _holds_something(code):
        _make(code)
        return code
    if "://" in source:
        raise FetchError(
            f"fetching code from {source} isn't built yet: put the unpacked code at {code} (COPY in the image's "
            "Dockerfile, or a mount), where it is used as it is"
        )
    if not os.path.exists(source):
        raise FetchError(f"the job's source {source} isn't on this host; {code} has no code in it either")
    if os.path.isfile(source) and source.endswith((".tar.gz", ".tgz", ".tar", ".zip")):
        raise FetchError(
            f"unpacking {source} isn't built yet: put the unpacked code at {code}, where it is used as it is"
        )
    return _copied(source, code)


def _make(code: str) -> None:
    """A program that is a command on PATH needs no code, but a directory to run in."""
    try:
        os.makedirs(code, exist_ok=True)
    except OSError:
        pass  # a program that is to be in it is missed with a better message


def _holds_something(folder: str) -> bool:
    try:
        return bool(os.listdir(folder))
    except OSError:
        return False


def _copied(source: str, code: str) -> str:
    """``code`` after ``source``, a directory or one file, was copied into it. Local jobs' output stays behind."""
    import shutil

    inside = os.path.join(os.path.realpath(code), "")

    def left_out(folder: str, names: list[str]) -> list[str]:
        here = os.path.realpath(folder)
        return [name for name in names if name == LOCAL_JOBS or inside.startswith(os.path.join(here, name, ""))]

    try:
        os.makedirs(code, exist_ok=True)
        if os.path.isdir(source):
            shutil.copytree(source, code, symlinks=True, ignore=left_out, dirs_exist_ok=True)
        else:
            shutil.copy2(source, code)
    except (OSError, shutil.Error) as error:
        raise FetchError(f"the code can't be copied from {source} to {code}: {error}") from None
    return code
