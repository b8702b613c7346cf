"""The runtime: what every step of a job may use; and the request: what this process was asked to do."""

import os
import time
from typing import TYPE_CHECKING, Any, Mapping, Sequence

from musterpoint import __version__
from musterpoint.base.console import Console
from musterpoint.base.errors import PREPARING, StoppedEarly, UsageError
from musterpoint.base.event_pipe import EventPipe
from musterpoint.base.failure import Failure, failure_of_error
from musterpoint.base.loop import Loop
from musterpoint.base.masking import Masker
from musterpoint.base.probe import Answer, ask
from musterpoint.base.records import NamedTuple
from musterpoint.base.settings import EVENTS, SHOWN, Settings
from musterpoint.base.spellings import Typed
from musterpoint.base.timeline import Timeline
from musterpoint.core.job.model import Job, Paths
from musterpoint.core.job.opt_ml import base_of, paths_of
from musterpoint.core.job.read import masker_of, masker_of_files
from musterpoint.core.ports import Ports
from musterpoint.core.processes.received_signals import STOPPING, Signals
from musterpoint.core.processes.sidecars import Sidecars
from musterpoint.core.report.output_directory import OutputDirectory
from musterpoint.core.supervise.watcher import JobWatchers

if TYPE_CHECKING:
    from musterpoint.core.code.tools import Tools
    from musterpoint.core.supervise.loan import Loan

SHARE_OF_ROLLCALL = 0.9
"""Share of the roll call's deadline for preparing this host's code, so that others still learn why it failed."""


class Request(NamedTuple):
    """What was asked of this process. ``given`` are options of the command line, by field; ``wrong``: why others of
    them can't be read.

    ``program`` is None for ``train``, where the platform names it. ``typed``: a person named it. ``arguments``
    are the program's; None: made from the platform's hyperparameters. ``python``: the Python that runs the program,
    once it is settled. ``line``: as it was typed, where options are told from the program's arguments by their place.
    ``notes``: what there is to say of it. ``loan``: what the job lends in whose program this launch runs.
    """

    environ: Mapping[str, str]
    given: Mapping[str, Any] = {}
    program: str | None = None
    arguments: tuple[str, ...] | None = ()
    module: bool = False
    typed: bool = False
    wrong: UsageError | None = None
    python: str = ""
    line: Typed | None = None
    notes: tuple[str, ...] = ()
    loan: "Loan | None" = None


class Runtime:
    """What every step may use: the event loop, the console, the masker of secrets, signals, sidecars, the timeline and
    the output directory; ``ports`` that are held for the job, and the ``watchers`` of the whole job.

    All are made here, and each changes by a method of its own only. ``request`` is what this process was asked;
    ``kept``: facts for ``outcome.json``.
    """

    def __init__(self, request: Request) -> None:
        _open_standard_streams()
        self.request = request
        self.loop = Loop()
        self._variables = dict(request.environ)
        self.use_options(request.given)
        if request.loan is not None:
            self._variables.update((f"SECRET_{at}", value) for at, value in enumerate(request.loan.masked))
        self.masker = Masker(self._variables, arguments=request.arguments or ())
        self.console = Console(lambda text: self.masker.mask(text), shown=request.environ.get(SHOWN, ""))
        self.timeline = Timeline()
        self.timeline.add("entry-point-started", version=__version__)
        if request.environ.get(EVENTS):
            self.timeline.pass_on(EventPipe(request.environ[EVENTS]).send)
        self.signals = Signals(self.loop, self._on_early_signal)
        self.sidecars = Sidecars(self.loop)
        self.output = OutputDirectory(Paths())
        self.ports = Ports()
        self.watchers = JobWatchers()
        self.kept: dict[str, Any] = {}
        self._job: Job | None = None
        self._tools: Tools | None = None
        self._stop_signal: int | None = None
        self._locks: tuple[int, ...] = ()

    def use_options(self, given: Mapping[str, Any]) -> None:
        """Hides secrets among options of a command line from the next :meth:`set_job` on."""
        self._variables.update((name, value) for name, value in given.items() if isinstance(value, str))

    def set_job(self, job: Job) -> None:
        """Uses ``job`` from now on: its secrets, the host's name, and where reports go."""
        self._job = job
        self.masker = masker_of(self._variables, job)
        self.timeline.set_host(job.own_name)
        self.open_output()

    def open_output(self) -> None:
        """Opens the directory of the reports, unless it is open, or another job's."""
        if not self.output.folder and self.request.loan is None:
            self.output = OutputDirectory(self.paths)

    @property
    def paths(self) -> Paths:
        """The job's directories; the platform's if the job can't be read, to report that there."""
        if self._job is not None:
            return self._job.paths
        paths = paths_of(base_of(self.request.environ))
        here = paths.base if self.request.program is None else paths.input_config
        return paths if os.path.isdir(here) else Paths()

    @property
    def leads(self) -> bool:
        """Whether this host speaks for the job: the first of the group, or any while the job can't be read."""
        return self._job is None or self._job.current_host == self._job.first_host

    def failure_of(self, error: Exception) -> Failure:
        """``error`` as this host's failure, in words that hide the job's secrets."""
        if self._job is None:  # the error may quote the job's files, so everything in them that looks secret is hidden
            self.masker = masker_of_files(self._variables)
        loan = self.request.loan
        host = self._job.own_name if self._job else loan.me if loan is not None else ""
        return failure_of_error(error, host, self.masker.mask, time.time())

    def ask(self, words: Sequence[str], environ: Mapping[str, str], cwd: str, errors: bool) -> Answer:
        """Asks a program of this host (:mod:`musterpoint.base.probe`).

        Raises:
            StoppedEarly: this host was told to stop.
        """
        return ask(words, environ, cwd, errors, self.loop, self.check_stop)

    def tools(self, job: Job, options: Settings) -> "Tools":
        """The tools that fetch the user's code and install packages; a stop ends their work."""
        if self._tools is None:
            from musterpoint.core.code import tools  # 2 ms, for code that is fetched, and packages

            output = tools.Output(
                self.console.say, self.console.show, self.timeline.add, lambda text: self.masker.mask(text)
            )
            seconds = options.rollcall_timeout * SHARE_OF_ROLLCALL if len(job.hosts) > 1 else None
            self._tools = tools.Tools(self.loop, job.own_name, output, seconds)
        return self._tools

    def close(self, ends: bool = False) -> None:
        """Ends the sidecars and restores the signal handlers; ``ends`` as for :meth:`Signals.close`."""
        self.watchers.close()
        self.sidecars.close()
        self.signals.close(ends)
        self.ports.keep(())
        for fd in self._locks:
            os.close(fd)

    def keep_open(self, locks: tuple[int, ...]) -> None:
        """Keeps the descriptors of ``locks`` open until :meth:`close`."""
        self._locks = locks

    def keep_stops(self) -> None:
        """As at the start: a stop is kept until :meth:`check_stop`."""
        self.signals.route_to(self._on_early_signal)

    def _on_early_signal(self, signo: int) -> None:
        """Handles signals until the roll call does: a stop ends the preparation of this host."""
        if signo in STOPPING:
            self._stop_signal = self._stop_signal or signo
            if self._tools is not None:
                self._tools.stop(signo)

    def check_stop(self, host: str = "") -> None:
        """Raises StoppedEarly if this host was told to stop. ``host``: its name, for as long as no job is set."""
        if self._stop_signal is not None:
            raise StoppedEarly(self._job.own_name if self._job else host, self._stop_signal, PREPARING)


def _open_standard_streams() -> None:
    """Opens closed ones of 0, 1 and 2: the next opened file would get that number, and ranks would write into it."""
    for fd in range(3):
        try:
            os.fstat(fd)
        except OSError:
            os.open(os.devnull, os.O_RDWR)
