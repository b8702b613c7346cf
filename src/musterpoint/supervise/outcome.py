"""How the processes of this host ended: facts only; what they mean is the report's business."""

from typing import NamedTuple, Protocol

from musterpoint.failure import Failure, Secondary
from musterpoint.launch.plan import ProcessPlan


class RankEnd(NamedTuple):
    """How one rank ended.

    ``status`` is as ``os.waitstatus_to_exitcode`` gives it (negative: a signal), None if nobody could see it.
    ``ended_by_us`` is true when the rank ended after the supervisor had asked it to (a stop, or another's failure).
    ``at`` is seconds since the epoch. ``oom`` says that the kernel's OOM killer struck in this container while it ran.
    ``tail`` is the end of what it wrote (stderr and stdout where they share a pipe), ``stdout_tail`` the end of its
    stdout where that is separate. ``mpi`` says that an MPI started it, whose library ends ranks of its own accord;
    ``given_up`` that the MPI had ended the rank's stub before.
    """

    rank: int
    local_rank: int
    pid: int
    status: int | None
    at: float
    ended_by_us: bool = False
    oom: bool = False
    tail: bytes = b""
    stdout_tail: bytes = b""
    mpi: bool = False
    given_up: bool = False


class Outcome(NamedTuple):
    """How the job ended, as this host knows it.

    ``code`` is the exit code of the job. ``failure`` is the job's first failure, the same on every host; None when
    all went well or the job was stopped. ``stopped_by`` is the host whose platform stopped the job, else empty.
    ``ends`` are this host's ranks. ``secondary`` counts the failures beside the first, on all hosts as far as known.
    ``stopped_at`` is when a stop, here or elsewhere, was first heard of (the loop's clock); None: never.
    ``spoilt`` is what went wrong on this host while it was stopping, such as a checkpoint that couldn't be saved.
    """

    code: int
    failure: Failure | None
    stopped_by: str
    ends: tuple[RankEnd, ...]
    secondary: Secondary = Secondary()
    stopped_at: float | None = None
    spoilt: Failure | None = None


class UnrankedEnd(NamedTuple):
    """How a launcher or service ended. ``registered`` is how many of its ranks had come up by then.

    ``users`` says that it is a service of the user's own, whose last words are the user's error; ``mpi`` that it is an
    mpirun or a daemon of one, which ends when another host or a rank does. ``oom`` is as in :class:`RankEnd`.
    """

    name: str
    role: str
    status: int
    registered: int
    tail: bytes = b""
    users: bool = False
    mpi: bool = False
    oom: bool = False


class Explainer(Protocol):
    """Turns facts into failures; the words of a failure are the report's business."""

    def rank(self, end: RankEnd) -> Failure: ...

    def orphans(self, end: RankEnd) -> Failure | None: ...

    def abort_code(self, tail: bytes) -> int | None: ...

    def unranked(self, end: UnrankedEnd) -> Failure: ...

    def cannot_start(self, process: ProcessPlan, error: OSError, step: str) -> Failure: ...

    def wrong_world(self, rank: int, got: int, planned: int) -> Failure: ...

    def unplanned_rank(self, rank: int, local_rank: int, planned: int) -> Failure: ...

    def left_without_finalize(self, rank: int, local_rank: int) -> Failure: ...

    def ended_by_mpi(self, rank: int, local_rank: int) -> Failure: ...

    def inner(self, failure: Failure) -> Failure: ...

    def daemon_refused(self, host: str, said: str) -> Failure: ...
