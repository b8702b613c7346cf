"""The input of a diagnosis: how a process ended, and the host's name, files and secrets."""

import time
from typing import TYPE_CHECKING, Callable, Literal, Sequence

from musterpoint.base.failure import Failure, Kind, fit
from musterpoint.base.records import NamedTuple
from musterpoint.core.code.program_files import ProgramFiles
from musterpoint.core.diagnosis.script_end import ScriptEnd
from musterpoint.core.job.platform import no_channels
from musterpoint.core.launch.launch_plan import Role

if TYPE_CHECKING:
    from musterpoint.core.diagnosis.raised_facts import RaisedFacts


Seen = Literal["ended", "ended well", "raising", "aborting", "cut short", "orphans"]
"""How a rank is seen: it has ``ended``, ``ended well`` (with 0), or still runs and is ``raising``, or ``aborting`` its
MPI; it was ``cut short`` for another's sake; or all that it left are ``orphans``.
"""


class Evidence(NamedTuple):
    """All that a rank left, at its end or before."""

    rank: int
    local_rank: int
    status: int | None
    """As ``os.waitstatus_to_exitcode`` gives it (negative: a signal); None: nobody could see it."""
    at: float
    """Seconds since the epoch."""
    oom: bool = False
    """The kernel's OOM killer struck in this container while it ran."""
    tail: bytes = b""
    """The end of its stderr, and of its stdout where both share a pipe."""
    stdout_tail: bytes = b""
    """The end of its stdout where that is separate."""
    mpi: bool = False
    """An MPI started it, which may end ranks by itself."""
    given_up: bool = False
    """That MPI had ended the rank's stub before."""
    aborted: bool = False
    """It had called ``MPI_Abort``, as its MPI printed."""
    ends_anyhow: bool = False
    """Under this MPI ranks that were given up end with any status."""
    raised: "RaisedFacts | None" = None
    """The exception that the rank itself told of."""
    below: "RaisedFacts | None" = None
    """The last one that a Python of its ``script`` told of."""
    script: ScriptEnd | None = None
    """The shell in the rank's place, once it has ended."""
    seen: Seen = "ended"
    world: int = 0
    """Ranks of the job in all; 0: unknown."""
    ended_well: frozenset[int] = frozenset()
    """The ranks of this host that had ended with 0 before."""
    launches: tuple[Failure | None, ...] = ()
    """The failures of launches of ours in its program, in the order of their ends; None: one went well."""
    since_launch: tuple[int, int] = (0, 0)
    """Bytes of stderr and stdout since the last of these ended."""


class ProcessEnd(NamedTuple):
    """How a service or a launcher ended. ``registered`` is how many of its ranks had come up by then.

    ``users``: it is a service of the user's own, so its output has the user's error; ``mpi``: it is mpirun or a daemon
    of it, which end when another host or a rank does. ``oom`` is as in :class:`Evidence`.
    """

    name: str
    role: Role
    status: int
    registered: int
    tail: bytes = b""
    users: bool = False
    mpi: bool = False
    oom: bool = False


class JobFacts(NamedTuple):
    """What of the job a hint depends on.

    ``missing_channel``: what makes the platform's hint about one (:class:`Platform`). ``local``: whether
    ``muster local`` plays it. ``channels``: names of its input channels. ``launcher``:
    what starts the ranks; ``ranks``: how many on this host. ``rank`` and ``local_rank``: the one that failed, where
    known. ``python``: the program's interpreter. ``debugged``: a rank has a person's terminal. ``program``: its file.
    ``once_per_host``: what starts it once per host. ``outside``: the name of this host's program where it is outside
    the distribution group, and no rank. ``role``: this host's own, in a job of several; ``role_is_one``: its programs
    are no ranks of a world; ``leads``: its ranks are those of the job.
    """

    missing_channel: Callable[[str, str, bool], str] = no_channels
    local: bool = False
    channels: tuple[str, ...] = ()
    launcher: str = "script"
    ranks: int = 1
    rank: int | None = None
    local_rank: int | None = None
    python: str = ""
    debugged: bool = False
    program: str = ""
    once_per_host: str = "--launcher script"
    outside: str = ""
    role: str = ""
    role_is_one: bool = True
    leads: bool = True


UNKNOWN = JobFacts()


class DiagnosisContext(NamedTuple):
    """What every diagnosis on a host needs.

    ``mask`` hides known secrets in text of other programs. ``files``: the user's source files. ``now`` gives the
    time in seconds since the epoch. ``job``: what hints depend on.
    """

    host: str
    mask: Callable[[str], str] = str
    files: ProgramFiles = ProgramFiles()
    now: Callable[[], float] = time.time
    job: JobFacts = UNKNOWN

    def own_failure(self, code: int, lines: Sequence[str], kind: Kind) -> Failure:
        """A failure of our own on this host, in these ``lines``."""
        return Failure(self.host, code, "muster", kind, fit(lines), at=self.now())
