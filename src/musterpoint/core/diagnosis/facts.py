"""The input of a diagnosis: how a process ended, and the host's name, files and secrets."""

import time
from typing import TYPE_CHECKING, Callable, Iterable

from musterpoint.base.records import NamedTuple
from musterpoint.core.job.platform import no_channels
from musterpoint.core.launch.plan import Role

if TYPE_CHECKING:
    from musterpoint.core.diagnosis.hidden_ends import ScriptEnd
    from musterpoint.core.diagnosis.raised_facts import RaisedFacts


class RankEnd(NamedTuple):
    """How one rank ended.

    ``status`` is as ``os.waitstatus_to_exitcode`` gives it (negative: a signal), None if nobody could see it.
    ``at`` is seconds since the epoch. ``oom`` says that the kernel's OOM killer struck in this container while it ran.
    ``tail`` is the end of what it wrote (stderr and stdout where they share a pipe), ``stdout_tail`` the end of its
    stdout where that is separate. ``mpi``: an MPI started it, which may end ranks by itself; ``given_up``: the MPI had
    ended the rank's stub before. ``aborted``: the rank had called ``MPI_Abort``, as its MPI printed;
    ``ends_anyhow``: under this MPI ranks that were given up end with any status. ``raised``: the exception that the
    rank itself told of; ``below``: the last one that a Python of its ``script`` told of.
    """

    rank: int
    local_rank: int
    status: int | None
    at: float
    oom: bool = False
    tail: bytes = b""
    stdout_tail: bytes = b""
    mpi: bool = False
    given_up: bool = False
    aborted: bool = False
    ends_anyhow: bool = False
    raised: "RaisedFacts | None" = None
    below: "RaisedFacts | None" = None
    script: "ScriptEnd | None" = None


class ServiceOrLauncherEnd(NamedTuple):
    """How a service or a launcher ended. ``registered`` is how many of its ranks had come up by then.

    ``users``: it is a service of the user's own, so its output has the user's error; ``mpi``: it is mpirun or a daemon
    of it, which end when another host or a rank does. ``oom`` is as in :class:`RankEnd`.
    """

    name: str
    role: Role
    status: int
    registered: int
    tail: bytes = b""
    users: bool = False
    mpi: bool = False
    oom: bool = False


class ProgramFiles:
    """The source files of the user's program. This class has none; ``supervise.program_files`` has one that reads."""

    directories: tuple[str, ...] = ()
    """Paths of the code directory, which file names in a reason are relative to."""

    def read(self, file: str) -> str | None:
        """The text of a file that a traceback names; None where it can't be read."""
        return None

    def programs(self) -> Iterable[str]:
        """The texts of the Python files in the code directory."""
        return ()


class JobFacts(NamedTuple):
    """What of the job a hint depends on.

    ``missing_channel``: what makes the platform's hint about one (:class:`Platform`). ``local``: whether
    ``muster local`` plays it. ``channels``: names of its input channels. ``launcher``:
    what starts the ranks; ``ranks``: how many on this host. ``rank`` and ``local_rank``: the one that failed, where
    known. ``python``: the program's interpreter. ``debugged``: a rank has a person's terminal. ``program``: its file.
    ``once_per_host``: what starts it once per host. ``outside``: the name of this host's program where it is outside
    the distribution group, and no rank.
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
