"""What the supervisor hears from this host, and what it can be told to do.

Words of the one decision (:mod:`musterpoint.supervise.policy`); what comes from other hosts is in
:mod:`musterpoint.channel.peers`. A rank is known by its key, ``(session, local rank)``: session 0 is the job's own
plan, later ones were handed over by a launcher that the job runs as its program.
"""

from typing import NamedTuple, Union

from musterpoint.channel.peers import PeerEvent
from musterpoint.failure import Failure, Secondary

Key = tuple[int, int]


class SessionOpened(NamedTuple):
    """``keys`` are the ranks that a plan will bring; ``foreign`` says that a launcher starts them, ``daemons`` that it
    is an MPI, whose daemons on all hosts hang on each other.
    """

    session: int
    keys: tuple[Key, ...]
    foreign: bool = False
    daemons: bool = False


class RankEnded(NamedTuple):
    """A rank ended; ``failure`` is None when it ended with 0."""

    key: Key
    failure: Failure | None


class UnrankedStarted(NamedTuple):
    """A launcher, an MPI daemon or a service runs. ``users`` says that a stop asks it to end and waits for that."""

    session: int
    name: str
    role: str
    users: bool = False


class UnrankedEnded(NamedTuple):
    """A launcher or a service ended; ``failure`` is what that means while the job runs, None if it may end so.

    ``vital`` says that ranks need it wherever they are, not only those of this host.
    """

    session: int
    name: str
    role: str
    failure: Failure | None
    vital: bool = False


class Broken(NamedTuple):
    """Something is wrong with the job though no process of it ended, such as a wrong world size."""

    failure: Failure


class StopAsked(NamedTuple):
    """The platform (or a person) asked this host to stop, with this signal."""

    signal: int


class KillDue(NamedTuple):
    """The time the ranks had to end by themselves is over."""


class VerdictDue(NamedTuple):
    """The leader said nothing about a failure of ours for too long."""


class LeaveDue(NamedTuple):
    """The time for a say_bye is over: other hosts or a launcher take too long."""


LocalEvent = Union[
    SessionOpened, RankEnded, UnrankedStarted, UnrankedEnded, Broken, StopAsked, KillDue, VerdictDue, LeaveDue
]  # fmt: skip
Event = Union[LocalEvent, PeerEvent]


class TellFailed(NamedTuple):
    failure: Failure


class TellStopping(NamedTuple):
    signal: int


class TellArrived(NamedTuple):
    point: str


class TellDone(NamedTuple):
    code: int
    failures: Secondary = Secondary()


class SignalRanks(NamedTuple):
    """Send ``signal`` to every live rank and to services of the user's own, once. 0: the settings' stop signal."""

    signal: int = 0


class StartTimer(NamedTuple):
    """Deliver ``event`` after ``seconds``; a timer of the same kind is replaced."""

    seconds: float
    event: KillDue | VerdictDue | LeaveDue


class KillTree(NamedTuple):
    """SIGKILL everything below us."""


class Release(NamedTuple):
    """Let the stubs of a session exit, and tell whoever handed it over how it ended."""

    session: int
    code: int


class Say(NamedTuple):
    text: str


class Finish(NamedTuple):
    """It is over: end what is left and return the outcome."""


Action = Union[TellFailed, TellStopping, TellArrived, TellDone, SignalRanks, StartTimer, KillTree, Release, Say, Finish]
