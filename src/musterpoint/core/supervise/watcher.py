"""What looks on beside the ranks of an attempt: the one interface, and the list of those that a host has open.

Each is a file of ``watchers/`` with a function ``watch``; :data:`KINDS` says when it is opened and for whom. Most jobs
have none, so a file is imported when its watcher is opened.
"""

from functools import partial
from importlib import import_module
from typing import Any, Callable, Literal

from musterpoint.base.loop import Timer
from musterpoint.base.records import NamedTuple
from musterpoint.core.channel.peers import AllLooked, LookAsked, Peers, Stalled, StillRunning
from musterpoint.core.rollcall.roster import Roster
from musterpoint.core.supervise.context import SupervisorContext
from musterpoint.core.supervise.events import LocalEvent
from musterpoint.core.supervise.host_processes import HostProcesses
from musterpoint.core.supervise.state import Rules

Moment = Literal["planned", "started", "waiting"]
"""``planned``: the processes of the plan have been started. ``started``: the ranks' output is read. ``waiting``: this
host is done, and others aren't.
"""
UNASKED_SECONDS = 600.0
"""Without ``--stall-timeout``, how long no rank prints until it is said, once, where they stand."""
NCCL_DUMPS = "TORCH_NCCL_DEBUG_INFO_TEMP_FILE"


class Watched(NamedTuple):
    """This host's part of one attempt, which a watcher looks at. ``emit`` tells the supervisor of something local."""

    context: SupervisorContext
    peers: Peers
    processes: HostProcesses
    roster: Roster
    rules: Rules
    emit: Callable[[LocalEvent], None]


class Watcher:
    """Looks on beside the ranks. It does nothing unless a method is replaced."""

    @property
    def sentence(self) -> str:
        """For whom this host waits, where it watches that."""
        return ""

    def hear(self, event: Any) -> None:
        """Another host tells of something that its kind hears."""

    def over(self, failed: bool) -> None:
        """No process of the attempt is left."""

    def close(self) -> None:
        """Looks no more."""


class WatcherKind(NamedTuple):
    """``file``: its module in ``watchers/``. ``when`` it is opened, if ``wanted`` for the attempt.
    ``hears``: the events of other hosts that are for it. ``after``: the seconds from that moment on in which it has
    nothing to do, so that most jobs never load it.
    """

    file: str
    when: Moment
    wanted: Callable[[Watched], bool]
    hears: tuple[type, ...] = ()
    after: Callable[[Watched], float] = lambda _watched: 0.0


def _has_dumps(watched: Watched) -> bool:
    started = watched.processes.started
    return started is not None and any(setting.name == NCCL_DUMPS for setting in started.plan.environment)


def _unasked(watched: Watched) -> float:
    return UNASKED_SECONDS if watched.rules.stall_timeout is None else 0.0


KINDS = (
    WatcherKind("starts", "planned", lambda watched: bool(watched.processes.unstarted)),
    WatcherKind("flight_dumps", "planned", _has_dumps),
    WatcherKind(
        "stalls", "started", lambda watched: not watched.rules.outside, (LookAsked, AllLooked, Stalled), _unasked
    ),
    WatcherKind("waiting", "waiting", lambda watched: len(watched.roster.seats) > 1, (StillRunning,)),
)


class Watchers:
    """Those that are open on this host, in the order in which they were opened."""

    def __init__(self, watched: Watched) -> None:
        self._watched = watched
        self._open: list[tuple[WatcherKind, Watcher]] = []
        self._later: list[tuple[WatcherKind, Timer]] = []

    def open(self, moment: Moment) -> None:
        """Opens those whose moment has come and that are wanted."""
        for kind in KINDS:
            if kind.when == moment and kind.wanted(self._watched):
                seconds = kind.after(self._watched)
                if seconds:
                    later = self._watched.context.loop.call_later(seconds, partial(self._begin, kind))
                    self._later.append((kind, later))
                else:
                    self._begin(kind)

    def _begin(self, kind: WatcherKind) -> None:
        module = import_module(f"musterpoint.core.supervise.watchers.{kind.file}")
        self._open.append((kind, module.watch(self._watched)))

    def hear(self, event: Any) -> bool:
        """Whether ``event`` is for watchers; those that are open and hear it have it."""
        for kind, watcher in tuple(self._open):
            if type(event) in kind.hears:
                watcher.hear(event)
        return any(type(event) in kind.hears for kind in KINDS)

    @property
    def sentence(self) -> str:
        """For whom this host waits; empty where it doesn't, or nobody knows."""
        return next((watcher.sentence for _, watcher in self._open if watcher.sentence), "")

    def over(self, failed: bool) -> None:
        """No process of the attempt is left."""
        for _, watcher in self._open:
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
