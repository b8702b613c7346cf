"""From the job's entry point to a workspace: the user's code on this host and the argv that starts it.

Code that is there goes first: an image may bring it, and the SDK's local mode mounts the user's own directory.
"""

import os
from typing import TYPE_CHECKING, Callable, Mapping, NamedTuple

from musterpoint.code import entry
from musterpoint.code.project import holds_something, may_want_packages
from musterpoint.errors import UsageError
from musterpoint.job.model import Job

if TYPE_CHECKING:
    from musterpoint.code.project import Project
    from musterpoint.code.source import Source
    from musterpoint.code.tools import Tools


class Workspace(NamedTuple):
    """``argv`` starts the user's program (hyperparameters included) with ``cwd`` as working directory.

    ``kind`` is ``python``, ``module``, ``shell`` or ``executable``; ``python`` and ``module`` programs start with
    ``interpreter``, the user's Python (not necessarily ours). ``program`` is the path or module name.
    ``pythonpath`` are the directories put in front of the user's own PYTHONPATH.
    """

    kind: str
    program: str
    argv: tuple[str, ...]
    cwd: str
    interpreter: str
    pythonpath: tuple[str, ...] = ()


def prepare(
    job: Job, environ: Mapping[str, str], interpreter: str, tools: "Callable[[], Tools] | None" = None,
    installer: str = "auto",
) -> Workspace:  # fmt: skip
    """Where the user's code is and how it is started by ``interpreter``, the user's Python.

    ``tools`` makes what code is fetched and packages are installed with. Without it nothing is: the program is looked
    for where its code lies now, and taken to be what its name says where that can't be looked into. ``installer`` is
    the option of that name. The program's arguments are the job's.

    Raises:
        UsageError: the program isn't there; the message says what is.
        FetchError: the code or its requirements can't be had.
        StoppedEarly: this host was told to stop meanwhile.
    """
    program, code = job.entry_point.program, job.paths.code
    if not program:
        raise UsageError(
            "the job names no program to run: set the hyperparameter sagemaker_program (SDK v2: entry_point; v3: "
            "SourceCode) or the variable SAGEMAKER_PROGRAM to a path in the source directory, such as train.py"
        )
    source = None if holds_something(code) else _source(job)
    if source is None:
        _make(code)
        if (
            job.entry_point.source == code
            and not job.entry_point.module
            and not os.path.exists(os.path.join(code, program))
        ):
            program = entry.beneath(program, code)
            job = job._replace(entry_point=job.entry_point._replace(program=program))
        start = _start(job, code, interpreter, environ, tools, installer, fetched=False)
    elif tools is None:
        start = _planned(job, source, interpreter, environ)
    else:
        from musterpoint.code.fetch import fetch

        fetch(source, code, job.region, environ, interpreter, tools())
        entry.make_executable(os.path.join(code, program), code)
        start = _start(job, code, interpreter, environ, tools, installer, fetched=True)
    return Workspace(
        kind=start.kind,
        program=program,
        argv=(*start.words, *job.arguments),
        cwd=code,
        interpreter=interpreter,
        pythonpath=(code,),
    )


def _source(job: Job) -> "Source | None":
    from musterpoint.code.source import find_source

    return find_source(job)


def _start(
    job: Job, code: str, interpreter: str, environ: Mapping[str, str], tools: "Callable[[], Tools] | None",
    installer: str, fetched: bool,
) -> entry.Start:  # fmt: skip
    """How the program starts, once what it needs is installed."""
    if tools is None or not may_want_packages(code):
        return entry.find(job.entry_point.program, job.entry_point.module, code, interpreter, environ)
    from musterpoint.code.project import project_in

    wanted = project_in(code, job.paths.input_data)
    start, missing = None, None
    try:
        start = entry.find(job.entry_point.program, job.entry_point.module, code, interpreter, environ)
    except UsageError as error:
        if not wanted.package:
            raise
        missing = error  # the package may bring it
    if wanted.wants_something:
        _install(job, wanted, start, code, interpreter, environ, tools(), installer, fetched)
    return start or _installed(job.entry_point.program, interpreter, environ, missing, tools())


def _install(
    job: Job, wanted: "Project", start: entry.Start | None, code: str, interpreter: str,
    environ: Mapping[str, str], tools: "Tools", installer: str, fetched: bool,
) -> None:  # fmt: skip
    kind = start.kind if start else "module"
    chosen = installer
    if installer == "auto":
        # as sagemaker-training has it: a shell script, or any other command, installs for itself
        chosen = "pip" if kind in ("python", "module") or (wanted.package and kind != "shell") else "none"
    if chosen == "none":
        why = "--installer none" if installer == "none" else "the entry point is no Python program"
        tools.say(f"{wanted.names} isn't installed ({why}); --installer pip does that (MUSTER_INSTALLER)")
        return
    from musterpoint.code.install import Place, install
    from musterpoint.code.source import has_no_network

    install(wanted, chosen, Place(code, interpreter, environ, fetched, has_no_network(job)), tools)


def _installed(
    program: str, interpreter: str, environ: Mapping[str, str], missing: UsageError | None, tools: "Tools"
) -> entry.Start:  # fmt: skip
    """A program that the package brought: a module of it, or a command.

    Raises:
        UsageError: it brought none.
    """
    from musterpoint.code.interpreter import has_module

    name = entry.module_name(program)
    if name and has_module(interpreter, name, environ, "/", tools.ask):
        return entry.Start("module", (interpreter, "-m", name))
    command = os.path.join(os.path.dirname(interpreter), program)
    if "/" not in program and os.path.isfile(command) and os.access(command, os.X_OK):
        return entry.Start("executable", (command,))
    raise UsageError(f"{missing}; the installed package has no module and no command of that name either")


def _planned(job: Job, source: "Source", interpreter: str, environ: Mapping[str, str]) -> entry.Start:
    """How the program would start from code that isn't fetched."""
    program = job.entry_point.program
    if source.kind == "directory":
        return entry.find(program, job.entry_point.module, source.place, interpreter, environ)
    return entry.by_name(program, job.entry_point.module, interpreter)


def _make(code: str) -> None:
    """A program that is a command on PATH needs no code, but a directory to run in."""
    try:
        os.makedirs(code, exist_ok=True)
    except OSError:
        pass  # a program that is to be in it is missed with a better message
