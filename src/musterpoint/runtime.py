"""The runtime: what every step of the road may use, and what was asked of this process."""

import os
from typing import TYPE_CHECKING, Any, Mapping, NamedTuple, Sequence

from musterpoint import __version__
from musterpoint.console import Console
from musterpoint.errors import PREPARING, StoppedEarly
from musterpoint.job.model import Job, Paths
from musterpoint.job.secrets import masker_of
from musterpoint.loop import Loop
from musterpoint.masking import Masker
from musterpoint.processes.sidecars import Sidecars
from musterpoint.processes.signals import STOPPING, Signals
from musterpoint.report.output_directory import OutputDirectory
from musterpoint.settings import Settings
from musterpoint.timeline import Timeline

if TYPE_CHECKING:
    from musterpoint.code.tools import Tools
    from musterpoint.outputs.sync import Sync
    from musterpoint.probe import Answer

SHARE_OF_ROLLCALL = 0.9
"""Of the roll call's deadline, what getting this host's code ready may take: the others still hear why it failed."""


class Request(NamedTuple):
    """What was asked of this process. ``given`` are options of the command line, by field.

    ``program`` is None for ``train``, where the platform names it. ``typed`` is true where a person did. ``arguments``
    are the program's; None: those that the platform's hyperparameters make.
    """

    environ: Mapping[str, str]
    given: Mapping[str, Any] = {}
    program: str | None = None
    arguments: tuple[str, ...] | None = ()
    module: bool = False
    typed: bool = False


class Runtime:
    """What every step may use: the loop, our voice, our memory, our ears, our sidecars, the report's room."""

    def __init__(self, request: Request) -> None:
        _open_standard_streams()
        self.request = request
        self.loop = Loop()
        texts = {name: value for name, value in request.given.items() if isinstance(value, str)}
        self._variables = {**request.environ, **texts}
        self.masker = Masker(self._variables, arguments=request.arguments or ())
        self.console = Console(lambda text: self.masker.mask(text))
        self.timeline = Timeline()
        self.timeline.add("started", version=__version__)
        self.ears = Signals(self.loop, self._hear)
        self._told: int | None = None
        self._tools: Tools | None = None
        self.sidecars = Sidecars(self.loop)
        self.sync: Sync | None = None
        self.room = OutputDirectory(Paths())

    def learn(self, job: Job) -> None:
        """What the job says may be secret, too; and whose timeline this is."""
        self.masker = masker_of(self._variables, job)
        self.timeline.host = job.current_host

    def suspect(self) -> None:
        """The job couldn't be read, and the error may quote it: whatever looks secret in its files counts."""
        from musterpoint.job.secrets import masker_of_files

        self.masker = masker_of_files(self._variables)

    def ask(self, words: Sequence[str], environ: Mapping[str, str], cwd: str, errors: bool) -> "Answer":
        """Asks a program of this host (:mod:`musterpoint.probe`).

        Raises:
            StoppedEarly: this host was told to stop.
        """
        from musterpoint import probe

        return probe.ask(words, environ, cwd, errors, self.loop, self._check)

    def tools(self, job: Job, options: Settings) -> "Tools":
        """What the user's code is fetched and packages are installed with; a stop ends that work."""
        from musterpoint.code.tools import Output, Tools

        waited_for = len(job.hosts) > 1 and options.rollcall != "off"
        self._tools = Tools(
            self.loop, job.current_host,
            Output(self.console.say, self.console.show, self.timeline.add, lambda text: self.masker.mask(text)),
            options.rollcall_timeout * SHARE_OF_ROLLCALL if waited_for else None,
        )  # fmt: skip
        return self._tools

    def _hear(self, signo: int) -> None:
        """What is heard until the roll call begins."""
        if signo in STOPPING:
            self._told = self._told or signo
            if self._tools is not None:
                self._tools.stop(signo)

    def _check(self) -> None:
        if self._told is not None:
            raise StoppedEarly(self.timeline.host, self._told, PREPARING)


def _open_standard_streams() -> None:
    """A closed 0, 1 or 2 would be given to the next file we open, and ranks would write into it."""
    for fd in range(3):
        try:
            os.fstat(fd)
        except OSError:
            os.open(os.devnull, os.O_RDWR)
