"""Prepares the workspace: the user's code on this host, and the argv that starts the entry point.

Code that is already there is used: an image may have it, and the SDK's local mode mounts the user's own directory.
"""

import os
from typing import TYPE_CHECKING, Callable, Mapping

from musterpoint.base.errors import FetchError, UsageError
from musterpoint.base.records import NamedTuple
from musterpoint.base.settings import CODE_COPY_OF, Installer
from musterpoint.core.code.interpreter import has_module
from musterpoint.core.code.program import Kind, Start, beneath, by_name, find_program, make_executable, module_name
from musterpoint.core.code.project import CHANNEL, MARK, Project, holds_something, may_want_packages, project_in
from musterpoint.core.code.source import find_source, has_no_network
from musterpoint.core.job.model import Job

if TYPE_CHECKING:
    from musterpoint.core.code.mark import Mark
    from musterpoint.core.code.source import Source
    from musterpoint.core.code.tools import Tools


class Workspace(NamedTuple):
    """The user's program, ready to be started.

    ``kind``: what kind of program it is; a ``python`` or ``module`` one starts with ``interpreter``.
    ``program``: its path or module name.
    ``argv``: starts it, hyperparameters included.
    ``cwd``: the working directory for it.
    ``interpreter``: the user's Python, not necessarily ours.
    ``pythonpath``: the directories put in front of the user's own PYTHONPATH.
    ``note``: says that code which was there is used and not the job's source; else empty.
    """

    kind: Kind
    program: str
    argv: tuple[str, ...]
    cwd: str
    interpreter: str
    pythonpath: tuple[str, ...] = ()
    note: str = ""


class Code:
    """The user's code, once it is on this host; it is fetched here if needed.

    ``tools`` makes the object that does the fetching and installing. None: nothing is fetched or installed; the program
    is searched for in the code's present place, or judged by its name where that can't be read. ``named``: the job must
    name a program; else the code does, in its roles.

    Raises:
        UsageError: the job names no program.
        FetchError: the code can't be fetched.
        StoppedEarly: this host was told to stop meanwhile.
    """

    def __init__(
        self,
        job: Job,
        environ: Mapping[str, str],
        interpreter: str,
        tools: "Callable[[], Tools] | None" = None,
        named: bool = True,
    ) -> None:
        self._job, self._environ, self._interpreter, self._tools = job, environ, interpreter, tools
        self._code = job.paths.code
        self._unused = ""
        if not job.entry_point.program and named:
            raise UsageError(
                "the job names no program to run: set the hyperparameter sagemaker_program (SDK v2: entry_point; v3: "
                "SourceCode) or the variable SAGEMAKER_PROGRAM to a path in the source directory, such as train.py"
            )
        self._elsewhere, before = self._source()
        self._fetched = before is not None
        if self._elsewhere is not None and tools is not None:
            where = job.region, environ, interpreter, tools()
            from musterpoint.core.code.fetch import fetch  # 15 ms, with what unpacks archives

            fetch(self._elsewhere, self._code, *where, before)
            make_executable(os.path.join(self._code, job.entry_point.program), self._code)
            self._elsewhere, self._fetched = None, True

    @property
    def folder(self) -> str:
        """The directory of the code now; empty where it is in none of this host yet."""
        if self._elsewhere is None:
            return self._code
        return self._elsewhere.place if self._elsewhere.kind == "directory" else ""

    def workspace(self, job: Job, interpreter: str, installer: Installer = "auto", requirements: str = "") -> Workspace:
        """Installs the packages of ``job`` if needed; returns how ``interpreter`` starts its program.

        ``job`` has the code of the one that this was made for. ``installer`` and ``requirements`` are the options of
        these names.

        Raises:
            UsageError: the program isn't there; the message lists what is.
            FetchError: its requirements can't be installed.
            StoppedEarly: this host was told to stop meanwhile.
        """
        self._job, self._interpreter, self._installer, self._requirements = job, interpreter, installer, requirements
        self._program, self._is_module = job.entry_point.program, job.entry_point.module
        if self._elsewhere is not None:
            start = self._start_unfetched(self._elsewhere)
        else:
            self._use_what_is_here()
            try:
                start = self._start(self._fetched)
            except UsageError as error:
                if not self._unused:
                    raise
                raise type(error)(f"{error}; {self._unused}: empty {self._code}, or put the program there") from None
        argv = (*start.words, *job.arguments)
        return Workspace(start.kind, self._program, argv, self._code, interpreter, (self._code,), self._unused)

    def _source(self) -> "tuple[Source | None, Mark | None]":
        """The source to bring, if any is; and the mark of what musterpoint brought before."""
        if not holds_something(self._code):
            return find_source(self._job), None
        marked = os.path.isfile(os.path.join(self._code, MARK))
        if not marked and not self._names_a_source:
            return None, None
        from musterpoint.core.code import mark  # 2 ms, where code may have to be brought

        before = mark.read_mark(self._code) if marked else None
        try:
            source = find_source(self._job)
        except FetchError:
            if before is not None and before.place != self._job.entry_point.source.removeprefix("file://"):
                raise
            return None, before
        if source is None or source.place == self._code:
            return None, before
        if source.place == self._environ.get(CODE_COPY_OF):  # muster local has brought it
            return None, before
        if before is None:
            self._unused = f"the code in {self._code} was there before the job: {source.place} isn't unpacked"
            return None, None
        here = mark.is_of(before, source, may_download=self._tools is not None)
        return (None if here else source), before

    @property
    def _names_a_source(self) -> bool:
        """Whether the job may have code elsewhere than in the code directory."""
        if self._job.entry_point.source not in ("", self._code):
            return True
        data = self._job.paths.input_data
        return bool(data) and os.path.isdir(os.path.join(data, CHANNEL))

    def _use_what_is_here(self) -> None:
        """Makes the code directory (a command on PATH runs in it); searches subdirectories for the program."""
        try:
            os.makedirs(self._code, exist_ok=True)
        except OSError:
            pass  # the error for the missing program says more
        if (
            self._job.entry_point.source == self._code
            and not self._is_module
            and not os.path.exists(os.path.join(self._code, self._program))
        ):
            self._program = beneath(self._program, self._code)

    def _find(self, folder: str) -> Start:
        return find_program(self._program, self._is_module, folder, self._interpreter, self._environ)

    def _start_unfetched(self, source: "Source") -> Start:
        """How the program would start, from code that isn't fetched yet."""
        if source.kind == "directory":
            return self._find(source.place)
        return by_name(self._program, self._is_module, self._interpreter)

    def _start(self, fetched: bool) -> Start:
        """Installs what the program needs; returns how it starts."""
        if self._tools is None or not (self._requirements or may_want_packages(self._code)):
            return self._find(self._code)
        project = project_in(self._code, self._job.paths.input_data, self._requirements)
        start, missing = None, None
        try:
            start = self._find(self._code)
        except UsageError as error:
            if not project.package:
                raise
            missing = error  # the package may bring it
        if project.wants_something:
            self._install(project, start.kind if start else "module", fetched, self._tools())
        return start or self._start_from_package(missing, self._tools())

    def _install(self, project: Project, kind: Kind, fetched: bool, tools: "Tools") -> None:
        chosen = self._installer
        if chosen == "auto" and self._requirements:
            chosen = "pip"
        if chosen == "auto":
            # as in sagemaker-training: a shell script or another command installs its packages itself
            chosen = "pip" if kind in ("python", "module") or (project.package and kind != "shell") else "none"
        if chosen == "none":
            why = "--installer none" if self._installer == "none" else "the entry point is no Python program"
            tools.say(f"{project.names} isn't installed ({why}); --installer pip does that (MUSTER_INSTALLER)")
            return
        isolated = has_no_network(self._job)
        from musterpoint.core.code.install import Target, install  # 8 ms, for jobs with packages

        target = Target(self._code, self._interpreter, self._environ, fetched, isolated)
        install(project, chosen, target, tools)

    def _start_from_package(self, missing: UsageError | None, tools: "Tools") -> Start:
        """How a program starts that is in the installed package: as a module, or as a command.

        Raises:
            UsageError: the package has no such program.
        """
        name = module_name(self._program)
        if name and has_module(self._interpreter, name, self._environ, "/", tools.ask):
            return Start("module", (self._interpreter, "-m", name))
        command = os.path.join(os.path.dirname(self._interpreter), self._program)
        if "/" not in self._program and os.path.isfile(command) and os.access(command, os.X_OK):
            return Start("executable", (command,))
        raise UsageError(f"{missing}; the installed package has no module and no command of that name either")
