"""The events of this host, and the actions of the supervisor.

These are the events and actions of the policy (:mod:`musterpoint.core.supervise.policy`); events of other hosts are in
:mod:`musterpoint.core.channel.peers`. A rank is identified by its key, the local rank.
"""

from typing import Literal, Union

from musterpoint.base.failure import Failure, Secondary
from musterpoint.base.records import NamedTuple
from musterpoint.core.channel.peers import PeerEvent
from musterpoint.core.job.model import Ends
from musterpoint.core.launch.launch_plan import Role

Key = int
"""A rank here by its local rank."""
Live = Union[Key, str]
"""A rank, or the name of a program beside the ranks."""
Whom = Literal["all", "job", "services"]


class Held(NamedTuple):
    """Programs whose end is the job's wait for other roles; ``names`` are those of their own roles."""

    names: frozenset[str]


class PlanStarted(NamedTuple):
    """The plan was started. ``keys`` are its ranks on this host; ``foreign`` says that a launcher starts them,
    ``mpi`` that it is an MPI, whose daemons on all hosts need each other.
    """

    keys: tuple[Key, ...]
    foreign: bool = False
    mpi: bool = False


class RankEnded(NamedTuple):
    """A rank ended; ``failure`` is None when it ended with 0, or as it was told to.

    ``cut_short``: the failure that it was about to be when another one's met it.
    """

    key: Live
    failure: Failure | None
    cut_short: Failure | None = None


class Raised(NamedTuple):
    """A rank has raised and is on its way out, or has ended and its output is being read: ``failure`` will be."""

    failure: Failure


class ServiceOrLauncherStarted(NamedTuple):
    """A service or a launcher runs. ``users``: it is the user's own; a stop signals it and waits for its end. ``ends``:
    of the program of a role beside this host's own; None: it is none.
    """

    name: str
    role: Role
    users: bool = False
    ends: Ends | None = None


class ServiceOrLauncherEnded(NamedTuple):
    """A service or a launcher ended; ``failure``: what that means while the job runs; None if it is fine.

    ``vital``: ranks of other hosts need it, too.
    """

    name: str
    role: Role
    failure: Failure | None
    vital: bool = False


class Broken(NamedTuple):
    """The job failed though no process ended, for example by a wrong world size."""

    failure: Failure


class StopAsked(NamedTuple):
    """The platform (or a person) asked this host to stop, with this signal."""

    signal: int


class KillDue(NamedTuple):
    """The grace of the signalled ranks is over."""


class RootCauseDue(NamedTuple):
    """The leader has not announced the root cause for too long after a failure here."""


class ServicesDue(NamedTuple):
    """Half of a stop's grace is over: roles that serve others are told, too."""


class LeftDue(NamedTuple):
    """A role that serves others has ended with 0 a moment ago."""


class LeaveDue(NamedTuple):
    """The time to wait for other hosts, launchers or services is over."""


LocalEvent = Union[
    Held,
    PlanStarted,
    RankEnded,
    Raised,
    ServiceOrLauncherStarted,
    ServiceOrLauncherEnded,
    Broken,
    StopAsked,
    KillDue,
    RootCauseDue,
    ServicesDue,
    LeftDue,
    LeaveDue,
]
Event = Union[LocalEvent, PeerEvent]


class ReportFailure(NamedTuple):
    """To the leader: this failed here."""

    failure: Failure


class ReportStop(NamedTuple):
    """To all hosts: this one was asked to stop."""

    signal: int


class ReportDone(NamedTuple):
    """To the leader: this host's ranks have ended, with this code; ``failures`` counts those beside the root cause."""

    code: int
    failures: Secondary = Secondary()


class SignalRanks(NamedTuple):
    """Send ``signal`` to every live rank and to services of the user's own, once; they have ``seconds``. ``whom``: only
    to those whose end is the job's, or to those that serve them.
    """

    signal: int
    seconds: float
    whom: Whom = "all"


class StartTimer(NamedTuple):
    """Deliver ``event`` after ``seconds``; a timer of the same kind is replaced."""

    seconds: float
    event: KillDue | RootCauseDue | ServicesDue | LeftDue | LeaveDue


class KillTree(NamedTuple):
    """SIGKILL everything below us."""


class Release(NamedTuple):
    """Let the stubs of a launcher exit."""


class Say(NamedTuple):
    """Print a line."""

    text: str


class Finish(NamedTuple):
    """The job is over: end what is left and return the outcome."""


Action = Union[ReportFailure, ReportStop, ReportDone, SignalRanks, StartTimer, KillTree, Release, Say, Finish]
