"""Installs what the user's code needs into the user's Python, once per host, before any rank starts."""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
import zlib
from collections import deque
from importlib import import_module
from pkgutil import iter_modules
from typing import Any, Callable, Iterable, Literal, Mapping, Sequence

import musterpoint
from musterpoint.base import executables, probe, settings, temporary
from musterpoint.base.errors import FetchError
from musterpoint.base.posix import fcntl
from musterpoint.base.probe import Ask
from musterpoint.base.records import NamedTuple
from musterpoint.base.untrusted import clip
from musterpoint.core.code import installer_output
from musterpoint.core.code.aws import package_index
from musterpoint.core.code.index_passwords import Credentials
from musterpoint.core.code.interpreter import ask, has_module
from musterpoint.core.code.project import LOCAL_JOBS, PYPROJECT, Project, unreadable
from musterpoint.core.code.tools import Execution, Tools
from musterpoint.embedded.programs import registry

TAIL = 800
"""Lines of an installer's output that are kept to explain a failure."""
PAUSE = 5.0
"""Seconds before another try after a network error."""
LONGEST_REASON = 760
"""Bytes of a message at most. A failure reason has 900, and also names the host."""
CODEARTIFACT = "CA_REPOSITORY_ARN"
WARM_POOL = "SAGEMAKER_MANAGED_WARMPOOL_CACHE_DIRECTORY"
_Command = tuple[tuple[str, ...], dict[str, str]]
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


class Target(NamedTuple):
    """What is installed into, and from where.

    ``code``: the directory of the user's code.
    ``interpreter``: the user's Python.
    ``environ``: its environment.
    ``fetched``: whether musterpoint filled the code directory, so that a build may write there.
    ``isolated``: whether the job has no network.
    """

    code: str
    interpreter: str
    environ: Mapping[str, str]
    fetched: bool
    isolated: bool = False


def install(project: Project, installer: Literal["pip", "uv"], target: Target, tools: Tools) -> None:
    """Installs ``project`` with ``installer`` for ``target.interpreter``.

    Raises:
        FetchError: it can't be installed; the message has the resolver's own sentence.
        StoppedEarly: this host was told to stop; the installer has ended.
    """
    if wrong := unreadable(target.code, project.requirements):
        raise FetchError(f"{installer} can't install {project.names}: in {target.code}, {wrong}")
    tools.begin(f"installing {project.names} with {installer}")
    tools.record("installing", what=project.names, installer=installer)
    if project.lock and installer != "uv":
        tools.say(f"{project.lock} isn't used: {installer} installs; MUSTER_INSTALLER=uv would use it")
    elif project.lock:
        project = project._replace(listed_itself="")  # uv reads the lock alone
    if os.path.dirname(target.interpreter) == os.path.dirname(sys.executable):
        load_package(tools.poll)
    place = temporary.place_of(target.environ)
    if not place:
        raise FetchError(temporary.missing(f"installing {project.names}", target.environ))
    with (
        InstallLock(target.interpreter, target.environ, tools),
        tempfile.TemporaryDirectory(prefix="musterpoint-install-", dir=place, ignore_cleanup_errors=True) as folder,
    ):
        credentials = Credentials(folder)
        environ = _environment(target, tools, credentials)
        build = "."
        # an editable package is where it is
        if (project.package or project.listed_itself) and project.listed_itself != "editable" and not target.fetched:
            build = build_directory(target.code, folder, tools.copy)
        make = uv_command if installer == "uv" else pip_command
        words, more = make(project, target.interpreter, environ, target.code, build, tools.ask)
        where = f" from {project.wheelhouse} alone" if project.wheelhouse else ""
        tools.say(f"{tools.doing} for {target.interpreter}{where}")

        def known(text: str) -> str:
            return tools.mask(credentials.hide(text if build == "." else text.replace(build, target.code)))

        place = os.path.join(target.code, build) if project.listed_itself else target.code
        run = _Run(project, installer, target._replace(code=place), tools, {**environ, **more}, known)
        run.through(words)
    tools.record("installed", what=project.names, installer=installer, seconds=tools.seconds)
    for text in installer_output.downgrades(run.lines):
        tools.say(text)


PARTS_OF_A_JOB = ("base", "core")
"""The packages of which a job may import a module after this point."""


def load_package(poll: Callable[[], None]) -> None:
    """Imports every module of musterpoint that the rest of the job may need, and reads the programs' texts.

    If musterpoint is among the requirements, the installer replaces or removes these files. ``poll`` is called between
    modules and may raise.
    """
    if not os.path.isfile(musterpoint.__file__):
        return  # the one-file launcher: no installer touches it
    for name in registry.PROGRAMS:
        registry.text_of(name)
    _import_all(musterpoint.__path__, "musterpoint.", poll)


def _import_all(paths: Iterable[str], prefix: str, poll: Callable[[], None]) -> None:
    for found in iter_modules(paths, prefix):
        if found.name.split(".")[1] not in PARTS_OF_A_JOB:
            continue
        poll()
        try:
            module = import_module(found.name)
        except ImportError:
            continue  # it is for another system, or needs a package that is missing
        if found.ispkg:
            _import_all(module.__path__, found.name + ".", poll)


class _Run:
    """Runs one install, with retries. Its output is shown as it comes, and its end is kept for the failure reason.

    ``known`` hides secrets in a line.
    """

    def __init__(
        self,
        project: Project,
        installer: str,
        target: Target,
        tools: Tools,
        environ: Mapping[str, str],
        known: Callable[[str], str],
    ) -> None:
        self._project, self._installer, self._target, self._tools = project, installer, target, tools
        self._environ, self._known = environ, known
        self.lines: deque[str] = deque(maxlen=TAIL)

    def through(self, words: tuple[str, ...]) -> None:
        """Installs; tries again after a network error, then with the build tools of the user's Python."""
        status = self._once(words)
        if status == 0:
            return
        lines = list(self.lines)
        network = installer_output.network_words(lines)
        if (network or installer_output.found_nothing(lines)) and not self._target.isolated:
            self._tools.say(f"{self._installer} couldn't reach what it needs; trying again in {PAUSE:.0f} s")
            self._tools.pause(PAUSE)
            # only with --verbose pip reports an index that answers with an error
            if self._once((*words, "--verbose") if self._installer == "pip" else words) == 0:
                return
            network = installer_output.network_words(self.lines) or network
        reason = self._reason(status, lines, network)
        offline = without_isolation(words, self._project, self._target.interpreter, self._environ, self._tools.ask)
        if not offline or not (network or installer_output.lacks_build_tools(lines)):
            raise FetchError(reason)
        backend = self._project.backend
        self._tools.say(f"the package's build tools can't be had: building with {backend} of the user's Python")
        if self._once(offline) != 0:
            said = clip(installer_output.reason(list(self.lines)), 160)
            raise FetchError(f"{reason}; with {backend} of the user's Python: {said}")

    def _once(self, words: tuple[str, ...]) -> int:
        self.lines.clear()
        try:
            return self._tools.run(Execution(words, self._environ, self._target.code), self._line)
        except OSError as error:
            raise FetchError(f"{words[0]} can't be run to install {self._project.names}: {error.strerror}") from None

    def _line(self, text: str) -> None:
        text = self._known(text)
        self.lines.append(text)
        self._tools.show(text)

    def _reason(self, status: int, lines: list[str], network: str) -> str:
        how = f"exit code {status}" if status >= 0 else f"signal {-status}"
        said = installer_output.reason(lines)
        if network and network not in said:
            said += f" (the network: {network})"
        advice = self._advice(lines, bool(network))
        text = f"{self._installer} can't install {self._project.names} ({how}): {said}"
        return clip(text, LONGEST_REASON - len(advice)) + advice

    def _advice(self, lines: Sequence[str], network: bool) -> str:
        if any("No module named pip" in line for line in lines):
            return f"; {self._target.interpreter} has no pip: add it to the image, or set MUSTER_INSTALLER=uv"
        if any("externally-managed-environment" in line for line in lines):
            return "; the image's Python belongs to its package system: set PIP_BREAK_SYSTEM_PACKAGES=1 in the image"
        if self._project.wheelhouse:
            return f"; only {self._project.wheelhouse} was looked at, so it has to hold everything"
        return "; without a network, put all wheels in a directory wheelhouse beside the code" if network else ""


def _environment(target: Target, tools: Tools, credentials: Credentials) -> dict[str, str]:
    """The installer's variables: the user's without our own options, and defaults for those that aren't set."""
    environ = settings.without_own(target.environ)
    defaults = {
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
        "PIP_NO_INPUT": "1",
        "PIP_PROGRESS_BAR": "off",
        "PIP_ROOT_USER_ACTION": "ignore",
        "UV_NO_PROGRESS": "1",
        "PYTHONUNBUFFERED": "1",
    }
    if target.isolated:  # five tries for each package would only take time
        defaults.update(PIP_RETRIES="1", PIP_DEFAULT_TIMEOUT="5", UV_HTTP_RETRIES="0")
    warm = environ.get(WARM_POOL, "")
    if warm:
        defaults.update(PIP_CACHE_DIR=os.path.join(warm, "pip"), UV_CACHE_DIR=os.path.join(warm, "uv"))
    environ = {**defaults, **environ}
    environ.update(credentials.take_from(environ))
    arn = environ.get(CODEARTIFACT, "")
    if arn:
        index = package_index(arn, target.environ, target.interpreter, tools)
        environ.update(credentials.give(index.url, "aws", index.token, environ))
        tools.say(f"packages come from {index.url}")
    return environ


_WAIT = "import fcntl, sys; fcntl.flock(int(sys.argv[1]), fcntl.LOCK_EX)"


class InstallLock:
    """Lets only one process at a time install into a Python; used in a ``with``.

    The kernel locks an open file, so the lock ends with the process that holds it. Where the file can't be made, there
    is no lock.
    """

    def __init__(self, interpreter: str, environ: Mapping[str, str], tools: Tools) -> None:
        self._interpreter, self._environ, self._tools = interpreter, environ, tools
        self._fd = -1

    @property
    def path(self) -> str:
        """The lock file: the same for all processes of this user that install into this Python."""
        folder = self._environ.get("TMPDIR") or "/tmp"
        name = zlib.crc32(os.path.dirname(os.path.abspath(self._interpreter)).encode(errors="surrogateescape"))
        return os.path.join(folder, f"musterpoint-install-{os.geteuid()}-{name:08x}.lock")

    def __enter__(self) -> InstallLock:
        try:
            self._fd = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        except OSError:
            return self
        try:
            self._take()
        except BaseException:
            self.__exit__()
            raise
        return self

    def _take(self) -> None:
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self._tools.say(f"another process is installing into {self._interpreter}: waiting for it")
            # a child waits, so that a stop can end the wait; it shares the open file, so the lock is ours too
            words = (self._interpreter, "-I", "-S", "-c", _WAIT, str(self._fd))
            self._tools.run(Execution(words, self._environ, "/", pass_fds=(self._fd,)), lambda text: None)

    def __exit__(self, *_: Any) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def pip_command(
    project: Project, interpreter: str, environ: Mapping[str, str], code: str, build: str, how: Ask = probe.ask
) -> _Command:
    """pip's command. The package and the requirements are in one command, so that they are resolved together.

    ``build`` is the directory the package is built from, and ``code`` the one where the command runs.
    """
    words = [interpreter, "-m", "pip", "install", *_from_wheelhouse(project)]
    if project.package:
        words += [*_built(project, build), *_unisolated(project)]
    if project.requirements:
        words += ["-r", project.requirements]
    if project.listed:
        words += _dependencies(interpreter, environ, code, how)
    return tuple(words), {}


def uv_command(
    project: Project, interpreter: str, environ: Mapping[str, str], code: str, build: str, how: Ask = probe.ask
) -> _Command:
    """uv's command: ``uv sync --frozen`` with a lock, else as pip's. Nothing is removed from the user's Python."""
    own = executables.find_command("uv", environ) or os.path.join(os.path.dirname(interpreter), "uv")
    program = (own,) if os.access(own, os.X_OK) else (interpreter, "-m", "uv")
    if len(program) > 1 and not has_module(interpreter, "uv", environ, "/", how):
        raise FetchError("MUSTER_INSTALLER=uv, but uv is neither on PATH nor in the user's Python: add it to the image")
    if project.lock:
        prefix = ask(interpreter, "import sys; print(sys.prefix)", "", environ, "/", how)[1].strip()
        words = ("sync", "--frozen", "--inexact", "--no-editable", "--python", interpreter, "--project", build)
        return (*program, *words, *_from_wheelhouse(project)), {"UV_PROJECT_ENVIRONMENT": prefix}
    more = [*_from_wheelhouse(project)]
    if project.package:
        more += [*_built(project, build), *_unisolated(project)]
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


def _built(project: Project, build: str) -> list[str]:
    """The package, unless the requirements name it: an installer takes two places for two packages of one name."""
    return [] if project.listed_itself else [build]


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
