"""What a diagnosis starts from: how a process ended, and what is known of the host on which it did."""

import time
from typing import Callable, Iterable, NamedTuple

from musterpoint.launch.plan import Role


class RankEnd(NamedTuple):
    """How one rank ended.

    ``status`` is as ``os.waitstatus_to_exitcode`` gives it (negative: a signal), None if nobody could see it.
    ``at`` is seconds since the epoch. ``oom`` says that the kernel's OOM killer struck in this container while it ran.
    ``tail`` is the end of what it wrote (stderr and stdout where they share a pipe), ``stdout_tail`` the end of its
    stdout where that is separate. ``mpi`` says that an MPI started it, whose library ends ranks of its own accord;
    ``given_up`` that the MPI had ended the rank's stub before.
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


class ServiceOrLauncherEnd(NamedTuple):
    """How a service or a launcher ended. ``registered`` is how many of its ranks had come up by then.

    ``users`` says that it is a service of the user's own, whose last words are the user's error; ``mpi`` that it is an
    mpirun or a daemon of one, which ends when another host or a rank does. ``oom`` is as in :class:`RankEnd`.
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
    """The source files of the user's program. This one has none; one that reads them is ``supervise``'s."""

    directories: tuple[str, ...] = ()
    """The names of the code directory: file names in a reason are relative to it."""

    def read(self, file: str) -> str | None:
        """The text of a file that a traceback names; None where it can't be read."""
        return None

    def programs(self) -> Iterable[str]:
        """The texts of the Python files in the code directory."""
        return ()


class DiagnosisContext(NamedTuple):
    """What every diagnosis on a host needs.

    ``mask`` hides known secrets in what others wrote. ``files`` are those of the user's program. ``now`` gives the
    time in seconds since the epoch.
    """

    host: str
    mask: Callable[[str], str] = str
    files: ProgramFiles = ProgramFiles()
    now: Callable[[], float] = time.time
