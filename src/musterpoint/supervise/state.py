"""What a decision starts from: the rules of a job, and the state its history has led to on this host."""

from typing import NamedTuple

from musterpoint import exit_codes
from musterpoint.failure import Failure, Secondary
from musterpoint.supervise.events import Action, Key

FAILURE_GRACE = 30.0
"""What ranks get to end by themselves when another failed: torchrun's figure, less where the platform gives less."""

SIGINT = 2
RANKS_ENDED = "ranks-ended"

Unranked = tuple[int, str]
"""Session and name."""


class Rules(NamedTuple):
    """The settings that matter here. ``grace`` is seconds between the stop signal and SIGKILL."""

    host: str
    grace: float
    on_failure: str = "end"
    stop_code: int = exit_codes.STOPPED
    outside: bool = False
    outside_stops: bool = False
    tolerates_lost_peers: bool = False


class State(NamedTuple):
    """``live`` are the ranks that haven't ended; ``foreign`` the sessions whose ranks a launcher starts, ``daemons``
    those of them where that is an MPI.

    ``launchers`` and ``services`` run beside the ranks; of services, those of the user's own, which are ``told`` to end
    when the ranks are. ``failed`` are the failures of ranks here; ``counted`` is what the leader knows of all hosts'
    besides the verdict's. ``spoilt`` is what went wrong here while the ranks were stopping.
    """

    phase: str = "running"
    live: frozenset[Key] = frozenset()
    foreign: frozenset[int] = frozenset()
    daemons: frozenset[int] = frozenset()
    released: frozenset[int] = frozenset()
    launchers: frozenset[Unranked] = frozenset()
    services: frozenset[Unranked] = frozenset()
    failure: Failure | None = None
    verdict: Failure | None = None
    failed: tuple[Failure, ...] = ()
    counted: Secondary = Secondary()
    spoilt: Failure | None = None
    stopped_by: str = ""
    stop_signal: int = 0
    told: bool = False
    killed: bool = False

    @property
    def code(self) -> int:
        """The job's exit code as far as it is known."""
        failure = self.verdict or self.failure
        return failure.code if failure else 0

    @property
    def failed_beside(self) -> Secondary:
        """The failures of ranks here, besides the job's first."""
        first = self.verdict or self.failure
        return Secondary.of(self.failed, first) if first else Secondary()

    @property
    def secondary(self) -> Secondary:
        """All failures known besides the job's first."""
        return max(self.counted, self.failed_beside, key=lambda tally: tally.total)

    @property
    def is_attended(self) -> bool:
        """Whether something still runs that may end by itself when all ranks have."""
        return bool(self.services) or any(session == 0 for session, _name in self.launchers)


Decision = tuple[State, list[Action]]


def code_of(state: State, rules: Rules) -> int:
    """The exit code of the job: the verdict's, the stop's, or 0."""
    if state.stop_signal:
        return exit_codes.of_signal(SIGINT) if state.stop_signal == SIGINT else rules.stop_code
    return state.code


def end_grace(state: State, rules: Rules) -> float:
    """Seconds that what was told to end gets for it."""
    return rules.grace if state.stopped_by else min(rules.grace, FAILURE_GRACE)


def first_line(failure: Failure) -> str:
    return failure.reason.partition("\n")[0].removeprefix("muster: ")


def end_of(session: int) -> str:
    """The point that every host arrives at when the ranks of a handed-over session have ended there."""
    return f"session-{session}-ended"


def session_of(point: str) -> int:
    """The session whose end a point is; 0 where it is another point."""
    number = point.removeprefix("session-").removesuffix("-ended")
    return int(number) if number.isdecimal() else 0
