"""The job as the platform describes it, before anything about this machine or other hosts is known."""

import os
from typing import Any, Literal

from musterpoint.base.errors import UsageError
from musterpoint.base.records import NamedTuple
from musterpoint.base.settings import MASTER_PORT


class Hyperparameter(NamedTuple):
    """``raw`` is the platform's text; ``value`` is the text decoded as JSON, or the text itself where it isn't JSON."""

    name: str
    raw: str
    value: Any


class Channel(NamedTuple):
    """One input data channel. ``mode`` is ``File`` or ``Pipe``; ``config`` is the platform's object, all keys kept."""

    name: str
    mode: str
    path: str
    config: dict[str, Any]


class InstanceGroup(NamedTuple):
    """Hosts of one instance type, in natural order."""

    name: str
    instance_type: str
    hosts: tuple[str, ...]


DistributionKind = Literal[
    "none",
    "torch_distributed",
    "pytorch_ddp",
    "pytorch_xla",
    "mpi",
    "smdistributed_dataparallel",
    "smdistributed_modelparallel",
    "parameter_server",
    "multi_worker_mirrored_strategy",
    "ray",
    "jax",
]


class Distribution(NamedTuple):
    """How the job is to be distributed over hosts.

    ``processes_per_host``: None where the job doesn't say.
    ``options``: the job's ``custom_mpi_options`` text, and ``options_key`` the hyperparameter that it came from.
    ``groups``: names of the instance groups that take part; empty: the job doesn't say.
    ``parameters``: the model-parallel library's ``mp_parameters``.
    ``processes``: the number of ranks on all hosts together, where the job gives one (Chainer,
    ``sagemaker_mpi_num_processes``).
    ``dataparallel``: whether scripts expect ``smdistributed.dataparallel``, whatever starts them.
    ``roles``: how many tasks of each role (``worker``, ``ps``, ``evaluator``) a parameter-server job asks for.
    """

    kind: DistributionKind = "none"
    processes_per_host: int | None = None
    options: str = ""
    groups: tuple[str, ...] = ()
    parameters: dict[str, Any] | None = None
    processes: int | None = None
    dataparallel: bool = False
    roles: tuple[tuple[str, int], ...] = ()
    options_key: str = ""


Ends = Literal["job", "with", "never"]
"""The end of a role: it is the job's; the role is told to end when those are through, and fails if it ends before;
the same, but it may end with 0 before.
"""


class Readiness(NamedTuple):
    """When a role is ready: it has ``started``; its program has opened a ``port``; that answers a GET of the path
    ``text`` with 2xx (``http``); or a ``line`` of its output has the ``text``.
    """

    kind: Literal["started", "port", "http", "line"] = "started"
    port: int = 0
    text: str = ""

    def __str__(self) -> str:
        if self.kind == "http":
            return f"http :{self.port}{self.text}"
        return f"port {self.port}" if self.kind == "port" else f"line {self.text!r}" if self.text else ""


class Role(NamedTuple):
    """One of several programs of a job, with a world of its own.

    ``hosts``: its hosts, in rank order; those of the role that it is ``beside``, if it has none of its own.
    ``program``, ``module``: empty: the job's. ``arguments``: None: the job's.
    ``launcher``, ``slots``: as the options of these names; an empty launcher: the program once per host.
    ``env``: variables of its program.
    ``ready``: when it is ready; ``after``: the roles that must be ready before it starts; ``ends``: see :data:`Ends`.
    ``gpus``: how many of each host's GPUs a role beside another one gets.
    ``replaced``: for this host's own role: what ``env`` stands for here, for programs of other roles; None: nothing.
    """

    name: str
    hosts: tuple[str, ...]
    program: str = ""
    module: bool = False
    arguments: tuple[str, ...] | None = None
    launcher: str = "auto"
    slots: int | None = None
    env: tuple[tuple[str, str], ...] = ()
    ready: Readiness = Readiness()
    after: tuple[str, ...] = ()
    ends: Ends = "job"
    beside: str = ""
    gpus: int = 0
    replaced: tuple[tuple[str, str | None], ...] = ()


class EntryPoint(NamedTuple):
    """The user's program as the platform names it.

    ``program``: a path relative to the code (``train.py``), an absolute path, or a command on PATH; a module where
    ``module`` is true.
    ``source``: where the code comes from (a directory, an archive, an ``s3://`` URI; empty: the platform's code
    directory or the working directory).
    """

    program: str
    source: str = ""
    module: bool = False


class Paths(NamedTuple):
    """The platform's directories on this host, absolute. Empty where the platform has none (``plain``).

    ``metrics`` is empty where the platform didn't make that directory.
    """

    base: str = ""
    input: str = ""
    input_config: str = ""
    input_data: str = ""
    model: str = ""
    output: str = ""
    output_data: str = ""
    output_intermediate: str = ""
    failure: str = ""
    success: str = ""
    code: str = ""
    checkpoints: str = ""
    metrics: str = ""


class Sources(NamedTuple):
    """The options or variables that gave the facts about unnamed hosts, for messages."""

    nnodes: str = "--nnodes"
    node_rank: str = "--node-rank"
    leader: str = "--rollcall-leader"


class UnnamedHosts(NamedTuple):
    """Hosts that the platform counts but doesn't name: the roll call learns their names.

    ``nnodes``: how many there are, this one included; several, except in what a reader has just read.
    ``node_rank``: this host's place in rank order; None: places go by arrival.
    ``leader``: the address or name of the first host, the leader.
    ``port``: the leader's port for the roll call; 0: the usual one.
    ``name``: how this host calls itself; empty: by the machine's own name.
    ``sources``: what said so.
    """

    nnodes: int
    node_rank: int | None
    leader: str
    port: int = 0
    name: str = ""
    sources: Sources = Sources()

    @property
    def misplaced(self) -> UsageError | None:
        """What is wrong with this host's node rank; None if nothing is."""
        rank, count = self.node_rank, self.nnodes
        if rank is None or rank < count:
            return None
        go = f"node ranks go from 0 to {count - 1}" if count > 1 else "it has node rank 0"
        there = f"there are {count} hosts" if count > 1 else "there is one host"
        return UsageError(f"{self.sources.node_rank} is {rank}, and {there} ({self.sources.nnodes}): {go}")


class StartedRank(NamedTuple):
    """The rank that the platform has started this process as, where it starts one process per rank itself.

    ``local_size``: how many ranks it starts on this host, each with an entry point of its own.
    ``mpi``: an mpirun of the platform's started it, so its program may call MPI.
    ``sizes``: how many it starts on each host, in rank order, where that is known to be uneven; empty: as many as here.
    """

    rank: int
    local_rank: int
    world_size: int
    local_size: int
    mpi: bool = False
    sizes: tuple[int, ...] = ()

    def on(self, place: int, hosts: int) -> "StartedRank":
        """The rank of the same place, or the last one, on the host at ``place`` of ``hosts``, in rank order."""
        sizes = self.sizes or (self.local_size,) * hosts
        local = min(self.local_rank, sizes[place] - 1)
        return self._replace(rank=sum(sizes[:place]) + local, local_rank=local, local_size=sizes[place])


class Counted(NamedTuple):
    """This host's accelerators as another toolkit counted them, and the variable that says so (empty: none does)."""

    slots: int = 0
    variable: str = ""


class Note(NamedTuple):
    """One sentence for the log; ``plan``: for ``muster plan`` alone."""

    level: Literal["info", "warning", "plan"]
    text: str


class Job(NamedTuple):
    """What the platform asked for. Immutable; built by one reader per platform.

    ``hosts``: all hosts of the job in natural order, which is also rank order.
    ``group_hosts``: those that take part in the distribution (all, unless instance groups say otherwise), in the same
    order; the first is the leader.
    ``arguments``: the user's arguments as the program gets them.
    ``grace``: seconds that the platform leaves between SIGTERM and SIGKILL.
    ``files``: the decoded configuration files, by file name, unknown keys kept.
    ``counted``: this host's accelerators, where another toolkit counted them.
    ``unnamed``: set where the platform doesn't name the hosts; ``hosts`` and ``group_hosts`` are then placeholders
    (``node-0``, ``node-1``, ...) until the roll call is over.
    ``started``: the rank that this process was started as; None where ranks are to be started.
    ``master_port``: the port for the framework's rendezvous that the platform prefers.
    ``rollcall_port``: the leader's port for the roll call, where the platform's hosts may be shared by several jobs; 0:
    the usual one.
    ``place``: this host's switches from the network's root on, where the platform says them; names joined by dots.
    ``cluster``: what says that the platform has started a cluster of Ray's around the program; empty: nothing does.
    ``assumed``: nobody says which hosts there are; this one is taken to be alone.
    ``is_named``: the platform or an option says the name; else it is the program's.
    ``roles``: its roles, in the order of the file; empty: it has one program. The group is then this host's role.
    ``leads``: the role whose first host leads the job.
    """

    platform: str
    name: str
    hosts: tuple[str, ...]
    current_host: str
    group_hosts: tuple[str, ...]
    entry_point: EntryPoint
    distribution: Distribution = Distribution()
    hyperparameters: tuple[Hyperparameter, ...] = ()
    arguments: tuple[str, ...] = ()
    channels: tuple[Channel, ...] = ()
    groups: tuple[InstanceGroup, ...] = ()
    current_group: str = ""
    instance_type: str = ""
    network_interface: str = ""
    region: str = ""
    arn: str = ""
    log_level: int = 20
    paths: Paths = Paths()
    grace: float = 30.0
    files: dict[str, Any] = {}
    notes: tuple[Note, ...] = ()
    counted: Counted = Counted()
    unnamed: UnnamedHosts | None = None
    started: StartedRank | None = None
    master_port: int = MASTER_PORT
    rollcall_port: int = 0
    place: str = ""
    cluster: str = ""
    assumed: bool = False
    is_named: bool = True
    roles: tuple[Role, ...] = ()
    leads: str = ""

    @property
    def rank_of_host(self) -> int:
        """This host's index among all hosts of the job."""
        return self.hosts.index(self.current_host)

    @property
    def leader(self) -> str:
        """The first host of the distribution group, or of this host's role."""
        return self.group_hosts[0]

    @property
    def role(self) -> Role | None:
        """This host's own role; None: the job has none."""
        return next((role for role in self.roles if not role.beside and self.current_host in role.hosts), None)

    @property
    def role_name(self) -> str:
        """The name of this host's own role; empty: the job has none."""
        return self.role.name if self.role is not None else ""

    @property
    def beside(self) -> tuple[Role, ...]:
        """The roles beside this host's own."""
        return tuple(role for role in self.roles if role.beside == self.role_name) if self.roles else ()

    @property
    def ends(self) -> Ends:
        """The end of this host's program, seen from the job's."""
        return "job" if self.role is None else self.role.ends

    @property
    def trains(self) -> bool:
        """This host's checkpoints are the job's: of its only group, or of the role that leads."""
        return self.in_group and self.role_name == self.leads

    @property
    def first_host(self) -> str:
        """The host that leads the job: of its only group, or of the role that leads."""
        return next((role.hosts[0] for role in self.roles if role.name == self.leads), self.leader)

    @property
    def roles_digest(self) -> str:
        """The same on all hosts that have read the same roles; empty where there are none."""
        if not self.roles:
            return ""
        import hashlib  # 2 ms, for jobs with roles

        bare = [role._replace(hosts=(), replaced=(), program=os.path.basename(role.program)) for role in self.roles]
        return hashlib.sha256(repr(bare).encode()).hexdigest()[:16]

    def seen_by(self, role: Role) -> "Job":
        """The job with the program, the hosts and the distribution of ``role``."""
        start, serves = self.entry_point, role.ends != "job" or bool(role.beside)
        if role.program:
            start = EntryPoint(role.program, start.source, role.module)
        return self._replace(
            group_hosts=role.hosts,
            entry_point=start,
            arguments=self.arguments if role.arguments is None else role.arguments,
            distribution=Distribution() if serves else self.distribution,
        )

    @property
    def own_name(self) -> str:
        """How this host is called in what is said: before the roll call has named the hosts, as it calls itself."""
        return self.unnamed.name or self.current_host if self.unnamed else self.current_host

    @property
    def in_group(self) -> bool:
        """Whether this host takes part in the distribution."""
        return self.current_host in self.group_hosts

    @property
    def outside(self) -> str:
        """The name of this host's program where it is outside the distribution group: its own group's; else empty."""
        return "" if self.in_group else self.current_group or self.own_name
