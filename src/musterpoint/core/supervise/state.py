"""The rules of a job, its state on this host, and the outcome it ends with."""

from typing import Literal

from musterpoint.base import exit_codes
from musterpoint.base.failure import Failure, Secondary
from musterpoint.base.records import NamedTuple
from musterpoint.core.channel.topics.raised_ranks import LATE
from musterpoint.core.job.model import Ends
from musterpoint.core.supervise.events import Action, Live

SIGINT, SIGTERM = 2, 15
SHORTEST_START = 300.0
"""Seconds that what starts ranks gets at least: a launcher may read its packages from a slow file system."""

Phase = Literal["running", "judging", "ending", "waiting", "leaving", "over"]
"""In the order in which a job passes them.

``running``: ranks are alive (or expected). ``judging``: something failed here, and the leader's root cause is awaited.
``ending``: the job failed or was stopped; ranks were signalled and have their time. ``waiting``: this host's ranks have
ended, or it has none; the other hosts' haven't all. ``leaving``: every host is done; launchers, and services of the
user's own, get a moment to end by themselves. ``over``: nothing more is decided.
"""


class Rules(NamedTuple):
    """The settings that the policy uses.

    ``grace`` is seconds between ``stop_signal``, which ranks get first, and SIGKILL. ``stop_code`` is the exit code of
    a stopped job. ``finish_on_failure`` is ``--on-failure finish``. ``outside`` says that this host is outside the
    distribution group. ``ends``: whose end ends the job, that of the program here or of others; ``role`` is its role,
    in a job of several, and ``job_roles`` those whose end is the job's, for people. ``tolerates_lost_peers``
    is the plan's. ``stall_timeout`` is seconds (None: never), ``stall_ends`` ``--on-stall end``. ``start_timeout`` is
    seconds in which others have to start this host's ranks. ``lent``: this is a launch in another job's program, which
    tells all hosts of a stop.
    """

    host: str
    grace: float
    stop_signal: int = SIGTERM
    stop_code: int = exit_codes.STOPPED
    finish_on_failure: bool = False
    outside: bool = False
    ends: Ends = "job"
    role: str = ""
    job_roles: str = ""
    tolerates_lost_peers: bool = False
    stall_timeout: float | None = None
    stall_ends: bool = True
    start_timeout: float = 900.0
    lent: bool = False


class State(NamedTuple):
    """What has happened so far.

    ``live`` are the ranks that haven't ended; ``foreign`` says that a launcher starts them, ``mpi`` that this is an
    MPI. ``launchers`` run beside the ranks, and so do ``services`` of the user's own (others aren't waited for), both
    by their names. ``failure`` is what this host has reported,
    ``root_cause`` what the leader announced. ``failed`` are the failures of ranks here; ``counted`` is what the leader
    knows of all hosts' beside the root cause. ``spoilt``: a failure here while the ranks were stopping.
    ``pending``: roles of this host whose end is the job's and which wait for others still. ``beside``: running programs
    of roles beside its own that serve others; ``may_leave``: those that may end before the job's. ``group_ended``: the
    job's own roles are through; ``services_told``: who serves them was told so. ``left``: roles that ended before.
    ``stopped_by`` is the host where ``stop_signal`` came, ``interrupted`` that a signal to stop came to this host
    since its ranks were told to end, or told them. ``signalled`` says that the ranks and services here were asked to
    end, ``killed`` that all was killed.
    """

    phase: Phase = "running"
    live: frozenset[Live] = frozenset()
    foreign: bool = False
    mpi: bool = False
    launchers: frozenset[str] = frozenset()
    services: frozenset[str] = frozenset()
    failure: Failure | None = None
    root_cause: Failure | None = None
    failed: tuple[Failure, ...] = ()
    counted: Secondary = Secondary()
    spoilt: Failure | None = None
    stopped_by: str = ""
    stop_signal: int = 0
    interrupted: bool = False
    signalled: bool = False
    killed: bool = False
    pending: frozenset[str] = frozenset()
    beside: frozenset[str] = frozenset()
    may_leave: frozenset[str] = frozenset()
    group_ended: bool = False
    services_told: bool = False
    left: tuple[str, ...] = ()

    @property
    def may_start(self) -> bool:
        """Whether roles of this host may start still: nothing has failed, and nobody was told to end."""
        ends = self.stopped_by or self.services_told or self.failure or self.root_cause
        return self.phase in ("running", "waiting") and not ends

    @property
    def secondary_here(self) -> Secondary:
        """The failures of ranks here, beside the root cause."""
        first = self.root_cause or self.failure
        return Secondary.of(self.failed, first) if first else Secondary()

    @property
    def secondary(self) -> Secondary:
        """All failures known beside the root cause."""
        return max(self.counted, self.secondary_here, key=lambda tally: tally.total)


class Outcome(NamedTuple):
    """How the job ended, as this host knows it.

    ``code`` is the exit code of the job. ``failure`` is the job's root cause, the same on every host; None when all
    went well or the job was stopped. ``stopped_by`` is the host whose platform stopped the job, else empty.
    ``secondary`` counts the failures beside the root cause, on all hosts as far as known. ``stopped_at`` is when this
    host first learned of a stop, here or elsewhere (the loop's clock); None: never. ``spoilt`` is what went wrong on
    this host while it was stopping, such as a checkpoint that couldn't be saved. ``attempts``: how often the ranks were
    started; ``no_restart`` says why not again, where they were started more than once. ``cut_off``: a rank of this host
    did not end with 0, also one that was told to end, so that what it was saving may be half. ``warnings``: what ranks
    that ended with 0 have hidden, and where output is missing.
    """

    code: int
    failure: Failure | None = None
    stopped_by: str = ""
    secondary: Secondary = Secondary()
    stopped_at: float | None = None
    spoilt: Failure | None = None
    attempts: int = 1
    no_restart: str = ""
    cut_off: bool = False
    warnings: tuple[str, ...] = ()


Decision = tuple[State, list[Action]]


def code_of(state: State, rules: Rules) -> int:
    """The exit code of the job as far as it is known."""
    failure = state.root_cause or state.failure
    return exit_codes.of_job(failure.code if failure else 0, state.stop_signal, rules.stop_code)


def first_line(failure: Failure) -> str:
    return failure.reason.partition("\n")[0].removeprefix("muster: ")


def first_lines(failure: Failure) -> str:
    """What went wrong and where, in one line: an error's own words don't say which rank had it."""
    what, *rest = failure.reason.removeprefix("muster: ").split("\n")
    late = [line for line in rest if LATE in line]
    who = [line for line in rest if LATE not in line][:1]
    return "; ".join((what, *late, *(line for line in who if line.startswith(("rank ", "the program of ")))))
