"""Watchers look on beside the ranks: their interface, and those that are open, of an attempt and of the job.

Each is a file of ``watchers/`` with a function ``watch``; :data:`KINDS` says when it is opened and for whom. Most jobs
have few, so a file is imported when its watcher is opened.
"""

from functools import partial
from importlib import import_module
from typing import Any, Callable, Literal, Mapping

from musterpoint.base.loop import Loop, Timer
from musterpoint.base.probe import Ask
from musterpoint.base.records import NamedTuple
from musterpoint.base.settings import Settings
from musterpoint.base.stop_budget import whole_grace
from musterpoint.core.channel.peers import AllLooked, LookAsked, Peers, Stalled, StillRunning
from musterpoint.core.job.hyperparameters import text_value
from musterpoint.core.job.model import Job
from musterpoint.core.launch.launch_plan import LaunchPlan
from musterpoint.core.processes.control_socket import Connection
from musterpoint.core.processes.received_signals import Signals
from musterpoint.core.processes.sidecars import Sidecars
from musterpoint.core.rollcall.roster import Roster
from musterpoint.core.supervise.context import SupervisorContext
from musterpoint.core.supervise.events import LocalEvent
from musterpoint.core.supervise.host_processes import HostProcesses
from musterpoint.core.supervise.state import Outcome, Rules

JobMoment = Literal["understood", "prepared", "brought", "starting"]
"""``understood``: the job and its options are known. ``prepared``: this host's code, devices and launcher are here.
``brought``: so is its data. ``starting``: a plan is about to be started.
"""
Moment = Literal["planned", "started", "waiting", "asked", "told"]
"""``planned``: the processes of the plan have been started. ``started``: the ranks' output is read. ``waiting``: this
host is done, and others aren't. ``asked``: a symptom's cause is looked for. ``told``: the ranks were told to end.
"""
OUTPUTS = "sagemaker_s3_output"
"""The hyperparameter that says where intermediate outputs go."""
UNASKED_SECONDS = 600.0
"""Without ``--stall-timeout``, how long no rank prints until it is said, once, where they stand."""
NCCL_DUMPS = "TORCH_NCCL_DEBUG_INFO_TEMP_FILE"


class Watched(NamedTuple):
    """This host's part of one attempt, which a watcher looks at. ``emit`` tells the supervisor of something local.
    ``seconds``: those that the ranks had to end when they were told.
    """

    context: SupervisorContext
    peers: Peers
    processes: HostProcesses
    roster: Roster
    rules: Rules
    emit: Callable[[LocalEvent], None]
    seconds: float = 0.0


class WatchedJob(NamedTuple):
    """The job on this host, and tools, for a watcher of the whole job."""

    loop: Loop
    sidecars: Sidecars
    signals: Signals
    say: Callable[[str], None]
    """Prints a sentence of ours."""
    record: Callable[..., None]
    """Adds an event and its facts to the timeline."""
    ask: Ask
    environ: Mapping[str, str]
    """The variables that the program sees."""
    options: Settings
    job: Job
    lent: bool
    """True for a launch in another job's program: data and outputs are that job's."""
    found: Any = ()
    """The moment's own: OpenSSH where hosts call each other by it, what is kept and sent, the user's Python."""

    @property
    def grace(self) -> float:
        """Seconds between SIGTERM and SIGKILL."""
        return whole_grace(self.job.grace, self.options.stop_grace)

    def left(self, outcome: Outcome) -> float | None:
        """Seconds that a stop leaves for the job's end; None: there was none."""
        return None if outcome.stopped_at is None else outcome.stopped_at + self.grace - self.loop.clock()


class Watcher:
    """Looks on beside the ranks. It does nothing unless a method is replaced.

    ``ports`` and ``key`` are for the other hosts to know.
    """

    ports: tuple[int, ...] = ()
    key = ""

    @property
    def sentence(self) -> str:
        """For whom this host waits, where it watches that."""
        return ""

    def starts(self, watched: Watched, plan: LaunchPlan, environ: Mapping[str, str]) -> None:
        """An attempt is about to start ``plan``."""

    def begins(self, watched: Watched) -> None:
        """The ranks of an attempt have been started."""

    def takes(self, connection: Connection, line: str) -> bool:
        """Tells that a connection which begins with ``line`` is for it."""
        return False

    def hear(self, event: Any) -> None:
        """Another host tells of something that its kind hears."""

    def stopping(self, seconds: float) -> None:
        """The ranks are about to be told to stop, and have so many seconds."""

    def killed(self) -> None:
        """The ranks' time to end was over: those that still ran have just been killed."""

    def over(self, failed: bool) -> None:
        """No process of the attempt is left."""

    def again(self, attempt: int) -> None:
        """Another attempt follows on the same hosts."""

    def forget(self) -> None:
        """It begins with other files than those that the last one left here."""

    def ends(self, outcome: Outcome) -> Mapping[str, Any]:
        """The job is over, whatever comes of it here; returns facts for ``outcome.json``."""
        return {}

    def close(self) -> None:
        """Looks no more."""


class WatcherKind(NamedTuple):
    """``file``: its module in ``watchers/``. ``when`` it is opened, if ``wanted`` for the attempt, or for the job: from
    a moment of the job on it is there for all attempts.
    ``hears``: the events of other hosts that are for it. ``after``: the seconds from that moment on in which it has
    nothing to do, so that most jobs never load it.
    """

    file: str
    when: Moment | JobMoment
    wanted: Callable[[Any], bool]
    hears: tuple[type, ...] = ()
    after: Callable[[Watched], float] = lambda _watched: 0.0

    def watch(self, seen: Watched | WatchedJob) -> Watcher:
        module = import_module(f"musterpoint.core.supervise.watchers.{self.file}")
        watcher: Watcher = module.watch(seen)
        return watcher


def _has_dumps(watched: Watched) -> bool:
    started = watched.processes.started
    return started is not None and any(setting.name == NCCL_DUMPS for setting in started.plan.environment)


def _unasked(watched: Watched) -> float:
    return UNASKED_SECONDS if watched.rules.stall_timeout is None else 0.0


def _late_in_grace(watched: Watched) -> float:
    return max(watched.seconds - 1.0, watched.seconds / 2)


KINDS = (
    WatcherKind("pid1_watch", "understood", lambda seen: not seen.lent),
    WatcherKind("ssh_sessions", "prepared", lambda seen: bool(seen.found)),
    WatcherKind("kept_checkpoints", "brought", lambda seen: "checkpoints" in seen.found),
    WatcherKind("sent_results", "brought", lambda seen: "results" in seen.found),
    WatcherKind(
        "uploads", "starting", lambda seen: not seen.lent and bool(text_value(seen.job.hyperparameters, OUTPUTS))
    ),
    WatcherKind("build_locks", "starting", lambda seen: True),
    WatcherKind("starts", "planned", lambda watched: bool(watched.processes.ranks.unstarted)),
    WatcherKind("flight_dumps", "planned", _has_dumps),
    WatcherKind(
        "stalls", "started", lambda watched: not watched.rules.outside, (LookAsked, AllLooked, Stalled), _unasked
    ),
    WatcherKind("waiting", "waiting", lambda watched: len(watched.roster.seats) > 1, (StillRunning,)),
    WatcherKind("latecomers", "asked", lambda watched: True),
    WatcherKind("latecomers", "told", lambda watched: bool(watched.processes.ranks.live), (), _late_in_grace),
)


class JobWatchers:
    """The open watchers of the whole job, in the order of their opening."""

    def __init__(self) -> None:
        self._open: dict[str, Watcher] = {}

    def open(self, moment: JobMoment, seen: WatchedJob) -> None:
        """Opens those whose moment has come and that are wanted, unless they are open.

        Raises:
            MusterError: what one needs isn't here.
        """
        for kind in KINDS:
            if kind.when == moment and kind.file not in self._open and kind.wanted(seen):
                self._open[kind.file] = kind.watch(seen)

    @property
    def all(self) -> tuple[Watcher, ...]:
        return tuple(self._open.values())

    @property
    def ports(self) -> tuple[int, ...]:
        """The ports at which they wait for other hosts."""
        return tuple(port for watcher in self.all for port in watcher.ports)

    @property
    def key(self) -> str:
        """The public key by which other hosts know this one; empty: there is none."""
        return "".join(watcher.key for watcher in self.all)

    def ends(self, outcome: Outcome) -> dict[str, Any]:
        """The job is over: each ends its work; the facts for ``outcome.json``."""
        return {name: fact for watcher in self.all for name, fact in watcher.ends(outcome).items()}

    def close(self) -> None:
        for watcher in self.all:
            watcher.close()


class Watchers:
    """The open watchers of an attempt, in the order of their opening; and those of the job."""

    def __init__(self, watched: Watched, of_job: JobWatchers) -> None:
        self._watched, self._of_job = watched, of_job
        self._open: list[tuple[WatcherKind, Watcher]] = []
        self._later: list[tuple[WatcherKind, Timer]] = []

    def open(self, moment: Moment) -> None:
        """Opens those whose moment has come and that are wanted. The job's begin with the ranks."""
        if moment == "started" and self._watched.processes.started is not None:
            for watcher in self._of_job.all:
                watcher.begins(self._watched)
        for kind in KINDS:
            if kind.when == moment and kind.wanted(self._watched):
                seconds = kind.after(self._watched)
                if seconds:
                    later = self._watched.context.loop.call_later(seconds, partial(self._begin, kind))
                    self._later.append((kind, later))
                else:
                    self._begin(kind)

    def _begin(self, kind: WatcherKind) -> None:
        self._open.append((kind, kind.watch(self._watched)))

    def starts(self, plan: LaunchPlan, environ: Mapping[str, str]) -> None:
        """``plan`` is about to be started."""
        for watcher in self._of_job.all:
            watcher.starts(self._watched, plan, environ)

    def takes(self, connection: Connection, line: str) -> bool:
        """Tells that a connection is for one of the job's, which has it then."""
        return any(watcher.takes(connection, line) for watcher in self._of_job.all)

    def stopping(self, seconds: float) -> None:
        """The ranks are about to be told to stop, and have so many seconds."""
        for watcher in self._of_job.all:
            watcher.stopping(seconds)

    def told(self, seconds: float) -> None:
        """The ranks have been told to end, and have so many seconds."""
        self._watched = self._watched._replace(seconds=seconds)
        self.open("told")

    def hear(self, event: Any) -> bool:
        """Whether ``event`` is for watchers; those that are open and hear it have it."""
        for kind, watcher in tuple(self._open):
            if type(event) in kind.hears:
                watcher.hear(event)
        return any(type(event) in kind.hears for kind in KINDS)

    def killed(self) -> None:
        """The ranks' time to end was over."""
        for _, watcher in self._open:
            watcher.killed()

    @property
    def sentence(self) -> str:
        """For whom this host waits; empty where it doesn't, or nobody knows."""
        return next((watcher.sentence for _, watcher in self._open if watcher.sentence), "")

    def over(self, failed: bool) -> None:
        """No process of the attempt is left."""
        for watcher in (*(watcher for _, watcher in self._open), *self._of_job.all):
            watcher.over(failed)

    def close(self, moment: Moment | None = None) -> None:
        """Closes those of ``moment``, or all."""
        for kind, timer in self._later:
            if moment in (None, kind.when):
                timer.cancel()
        for each in tuple(self._open):
            if moment in (None, each[0].when):
                each[1].close()
                self._open.remove(each)
