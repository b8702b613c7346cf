"""The launch plan: every process this host will start, with a reason for every flag and variable."""

from typing import Literal, Sequence

from musterpoint.base.records import NamedTuple
from musterpoint.core.code.workspace import Workspace
from musterpoint.core.fabric.setting import CpuSet, EnvSetting, cpu_numbers
from musterpoint.core.job.model import Ends, Readiness
from musterpoint.embedded.programs.registry import Program


class Argument(NamedTuple):
    """One word of an argv.

    text: the word; a placeholder where ``ours`` is given.
    reason: why it is there, for ``muster plan``; empty where it is clear, or belongs to the word before.
    ours: the program of musterpoint whose path the process gets.
    """

    text: str
    reason: str = ""
    ours: Program | None = None


OWN_PATHS = ("PATH", "LD_LIBRARY_PATH")
"""Variables that the stub sets back, from ``MUSTER_USER_<NAME>``: an mpirun that is called by its path puts its own
folders first."""
Role = Literal["rank", "launcher", "service"]
"""A rank is started by the supervisor itself. A launcher starts this host's ranks through the rank stub. A service runs
until the ranks of all hosts have ended; if it ends before them, the job ends.
"""


def program_of_ours(name: Program, reason: str = "") -> Argument:
    """Stands for the path of ``programs/<name>.py``; its fields also fit the end of an ``EnvSetting``.

    The supervisor puts in the path when it starts the process. The file is a memfd: no directory has to be writable.
    """
    return Argument(f"{{muster:{name}}}", reason, name)


class ProcessPlan(NamedTuple):
    """One process of this host.

    role: rank, launcher or service.
    name: for messages, such as ``rank 0`` or ``torchrun``.
    argv: its command line.
    environment: variables on top of the plan's.
    cwd: its working directory.
    rank: the global rank; None where it is no rank.
    local_rank: the rank on this host; None likewise.
    users: whether a service is the user's own program. It may end with 0, and its error is the user's.
    optional: whether the job goes on, whatever becomes of a service that isn't the user's own.
    time_to_end: seconds between SIGTERM and SIGKILL for such a service when every rank has ended; 0: it is killed.
    of_role: the role that it is the program of, beside the host's own; empty: it is of the host's own.
    without: variables that it doesn't get, which are those of the host's own role.
    """

    role: Role
    name: str
    argv: tuple[Argument, ...]
    environment: tuple[EnvSetting, ...] = ()
    cwd: str = "/"
    rank: int | None = None
    local_rank: int | None = None
    users: bool = False
    optional: bool = False
    time_to_end: int = 0
    of_role: str = ""
    without: tuple[str, ...] = ()

    @property
    def words(self) -> list[str]:
        return [argument.text for argument in self.argv]


class Gate(NamedTuple):
    """The start and the end of a ``role`` here. It starts once the roles ``after`` are ready, and is ``ready`` itself
    then; ``ends``: as in its role; ``needed``: other roles wait for it.
    """

    role: str
    after: tuple[str, ...]
    ready: Readiness
    ends: Ends
    needed: bool = False


class Meeting(NamedTuple):
    """Where the ranks of a plan meet, if they are one world; the leader watches it.

    port: the port of this host at which every rank connects.
    hosts: the addresses of the other hosts, to which ranks that met elsewhere have connections.
    required: whether the job fails where the ranks never met; else that is a warning.
    library: part of the name of a file that every program has in memory whose ranks are to meet.
    modules: Python modules that a program imports whose ranks are to meet; one that has neither isn't warned about.
    advice: what makes ranks meet, for the message.
    program: the program's file, or its module's name with slashes; empty where it isn't one of Python's.
    apart: the hosts' programs may be independent: only a world that was seen on this host alone is warned about.
    """

    port: int
    hosts: tuple[str, ...]
    required: bool
    library: str
    modules: tuple[str, ...]
    advice: str
    program: str = ""
    apart: bool = False


class PlannedFile(NamedTuple):
    """A file that the supervisor writes, for this user alone, before it starts anything.

    name: its path below the directory that it is for.
    text: what is in it; ``{muster:NAME}`` stands for the path of a program of ours, or of a text in memory.
    executable: whether it is a program.
    """

    name: str
    text: str
    executable: bool = False


class SshServer(NamedTuple):
    """What answers ssh on this host for as long as the job runs.

    argv: started once for each caller, whose connection it gets as stdin and stdout.
    folder: the directory with the job's keys.
    callers: name and address of each host that may call.
    files: what is written into ``folder``.
    sftp_server: the program that answers scp and sftp; empty: none.
    """

    argv: tuple[Argument, ...]
    folder: str
    callers: tuple[tuple[str, str], ...]
    files: tuple[PlannedFile, ...]
    sftp_server: str = ""

    @property
    def process(self) -> ProcessPlan:
        """What answers one caller. The job goes on, whatever becomes of it: the caller's program sees its end."""
        return ProcessPlan("service", "sshd", self.argv, optional=True)


BOOT = (
    "from __future__ import annotations;import os;"
    '[exec(part,globals())for part in open(os.environ["MUSTER_STUB"]).read().split("\\n\\n\\n")]'
)
"""Starts the stub; the same text on all hosts. Each host's supervisor sets MUSTER_STUB to the path of its stub.

Compiling the stub function by function saves 0.5 MiB on every rank. The ``__future__`` import holds for all functions.
"""


def rank_process(
    workspace: Workspace, rank: int, settings: tuple[EnvSetting, ...] = (), local_rank: int = 0
) -> ProcessPlan:
    """The user's program as ``rank``, started by the supervisor itself."""
    return ProcessPlan(
        "rank", f"rank {rank}", program_arguments(workspace.argv), settings, workspace.cwd, rank, local_rank
    )


def told_local_rank(process: ProcessPlan, program: Sequence[str], at: int, flag: str) -> ProcessPlan:
    """``process`` with ``flag=N`` at that place of the ``program`` at the end of its argv, if it is a rank."""
    before = len(process.argv) - len(program)
    if process.role != "rank" or process.words[before:] != list(program):
        return process
    at += before
    word = Argument(f"{flag}={process.local_rank or 0}", "--local-rank was given")
    return process._replace(argv=(*process.argv[:at], word, *process.argv[at:]))


def service_process(workspace: Workspace, name: str, settings: tuple[EnvSetting, ...] = ()) -> ProcessPlan:
    """The user's program as a service called ``name``."""
    return ProcessPlan("service", name, program_arguments(workspace.argv), settings, workspace.cwd, users=True)


def program_arguments(argv: Sequence[str]) -> tuple[Argument, ...]:
    """The user's program and its arguments."""
    return tuple(Argument(word, "the program" if at == 0 else "") for at, word in enumerate(argv))


def through_stub(interpreter: str, argv: Sequence[str]) -> tuple[str, ...]:
    """``argv`` with the words before it that run it through the rank stub."""
    return (interpreter, "-I", "-S", "-c", BOOT, "--", *argv)


def stub_arguments(interpreter: str, argv: Sequence[str], for_stub: tuple[Argument, ...] = ()) -> tuple[Argument, ...]:
    """:func:`through_stub`, each word with its reason; ``for_stub`` are words that the stub itself reads."""
    python, isolated, no_site, command, boot, end, *program = through_stub(interpreter, argv)
    return (
        Argument(python, "runs the rank stub, which starts the program and reports exactly how it ended"),
        Argument(isolated, "nothing of the user's is imported into the stub"),
        Argument(no_site, "starts in 10 ms"),
        Argument(command, "reads the stub from where this host's supervisor put it"),
        Argument(boot),
        *for_stub,
        Argument(end, "the program follows"),
        *program_arguments(program),
    )


class LaunchPlan(NamedTuple):
    """What to start on this host.

    launcher: the launcher it is for.
    host: this host's name.
    processes: what the supervisor starts.
    environment: variables of every process, on top of the supervisor's own environment.
    local_ranks: how many ranks this host will have.
    world_size: how many ranks there will be in all.
    first_rank: the global rank of the first one here.
    user_cwd: the working directory that the rank stub restores for the user's program.
    user_pythonpath: the PYTHONPATH that it restores.
    unset: variables that no process gets.
    independent: whether the hosts' programs are on their own: no common world, and the job goes on when a host is lost.
    notes: sentences for ``muster plan`` and the log.
    daemons: file names of programs (MPI's) that the leader may ask this host to start; they start the ranks' stubs,
        and this host has no launcher process.
    local_rank_at: the place in the program's argv where the stub puts ``--local_rank=N``; -1: nowhere.
    local_rank_flag: how that argument begins.
    of_others: what each other entry point runs that the platform started on this host; one process, or none.
    under_mpi: whether an mpirun, ours or the platform's, starts the ranks: its processes end each other.
    hydra: whether the ranks' MPI is one of Hydra's (MPICH and its kin): it prints a line of its own when a rank calls
        ``MPI_Abort``, and a daemon of it ends with its host's last rank.
    expands: whether the stubs replace ``$LOCAL_RANK`` and the like in the program's words.
    temporary: a directory that the processes make; it is removed when the job is over. Empty: none.
    meeting: where the ranks meet, on the leader; None: nobody watches that.
    cpu_sets: the processors of each local rank; empty: the system's choice.
    ssh: this host's ssh server; None: there is none.
    gates: of this host's own role, and of those beside it; empty: the job has no roles.
    """

    launcher: str
    host: str
    processes: tuple[ProcessPlan, ...]
    environment: tuple[EnvSetting, ...]
    local_ranks: int
    world_size: int
    first_rank: int
    user_cwd: str
    user_pythonpath: str = ""
    unset: tuple[str, ...] = ()
    independent: bool = False
    notes: tuple[str, ...] = ()
    daemons: tuple[str, ...] = ()
    local_rank_at: int = -1
    local_rank_flag: str = "--local_rank"
    temporary: str = ""
    meeting: Meeting | None = None
    of_others: tuple[ProcessPlan, ...] = ()
    under_mpi: bool = False
    hydra: bool = False
    expands: bool = False
    cpu_sets: tuple[CpuSet, ...] = ()
    ssh: SshServer | None = None
    gates: tuple[Gate, ...] = ()

    @classmethod
    def nothing(cls, host: str) -> "LaunchPlan":
        """The plan of a host that starts nothing."""
        return cls("", host, (), (), 0, 0, 0, "/")

    def cpus_of(self, process: ProcessPlan) -> list[int]:
        """The processors of ``process``, where it is a rank that has some of its own; else empty."""
        if not self.cpu_sets or process.role != "rank" or process.local_rank is None:
            return []
        return cpu_numbers(self.cpu_sets[process.local_rank].cpus) if process.local_rank < len(self.cpu_sets) else []

    @property
    def own_ends(self) -> Ends:
        """The end of this host's own program, seen from the job's."""
        return self.gates[0].ends if self.gates else "job"

    def ends_of(self, process: ProcessPlan) -> Ends:
        """The end of ``process``, one of this plan's, seen from the job's."""
        return next((gate.ends for gate in self.gates if gate.role == process.of_role), self.own_ends)

    @property
    def foreign(self) -> bool:
        """Whether a launcher or daemon, not the supervisor, starts this host's ranks."""
        return bool(self.daemons) or any(process.role == "launcher" for process in self.processes)
