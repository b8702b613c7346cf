"""Installs what the user's code needs into the user's Python, once per host, before any rank starts."""

from __future__ import annotations

import os
import sys
import tempfile
import zlib
from collections import deque
from importlib import import_module
from pkgutil import iter_modules
from typing import Any, Callable, Iterable, Literal, Mapping, Sequence

import musterpoint
from musterpoint.base import settings, temporary
from musterpoint.base.errors import FetchError
from musterpoint.base.posix import fcntl
from musterpoint.base.records import NamedTuple
from musterpoint.base.untrusted import clip
from musterpoint.core.code import installer_output, installers
from musterpoint.core.code.aws import package_index
from musterpoint.core.code.credentials import Credentials
from musterpoint.core.code.project import Project
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
    tools.begin(f"installing {project.names} with {installer}")
    tools.record("installing", what=project.names, installer=installer)
    if project.lock and installer != "uv":
        tools.say(f"{project.lock} isn't used: {installer} installs; MUSTER_INSTALLER=uv would use it")
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
        if project.package and not target.fetched:
            build = installers.build_directory(target.code, folder, tools.copy)
        make = installers.uv if installer == "uv" else installers.pip
        words, more = make(project, target.interpreter, environ, target.code, build, tools.ask)
        where = f" from {project.wheelhouse} alone" if project.wheelhouse else ""
        tools.say(f"{tools.doing} for {target.interpreter}{where}")

        def known(text: str) -> str:
            return tools.mask(credentials.hide(text if build == "." else text.replace(build, target.code)))

        run = _Run(project, installer, target, tools, {**environ, **more}, known)
        run.through(words)
    tools.record("installed", what=project.names, installer=installer, seconds=tools.seconds)
    for text in installer_output.downgrades(run.lines):
        tools.say(text)


NO_PART_OF_A_JOB = ("__main__", "cli", "embedded", "integrations", "local", "sagemaker", "serve", "tools")
"""Modules that a job never imports after this point."""


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
        if found.name.split(".")[1] in NO_PART_OF_A_JOB:
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
        offline = installers.without_isolation(
            words, self._project, self._target.interpreter, self._environ, self._tools.ask
        )
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
