"""What differs by launcher: which one a job gets, how many ranks and ports each host has under it, and the plan."""

from typing import Callable, Mapping, NamedTuple

from musterpoint.base.errors import LauncherError, UsageError
from musterpoint.base.settings import Launcher, Settings
from musterpoint.core.fabric.devices import Devices
from musterpoint.core.job import platforms
from musterpoint.core.job.model import Job
from musterpoint.core.launch.inputs import RANKS_SERVERS, LaunchInputs, capacity_of
from musterpoint.core.launch.plan import ONE_PER_HOST, RAY_PORTS, SUPERVISED, LaunchPlan, told_local_rank

NEEDED: dict[Launcher, str] = {
    "torchrun": "torch",
    "deepspeed": "deepspeed",
    "ray": "ray",
    "jax": "jax",
    "accelerate": "accelerate",
}
"""The Python module that a launcher needs."""
USED: dict[Launcher, tuple[str, ...]] = {"mpi": ("mpi4py",), "ranks": ("horovod", "xgboost"), "ray": ("grpc",)}
"""The Python modules that a launcher uses if they are there."""

TENSORFLOW: tuple[Launcher, ...] = ("tensorflow", "parameter-server")

MPIRUN = "mpirun"
"""Stands among modules for the question whether this host has an MPI."""

_KINDS: dict[str, tuple[Launcher, str]] = {
    "torch_distributed": ("torchrun", "the job asks for torch_distributed"),
    "pytorch_ddp": ("torchrun", "the job asks for pytorchddp, which is torchrun by another name"),
    "mpi": ("mpi", "the job asks for MPI"),
    "smdistributed_modelparallel": (
        "mpi",
        "the job asks for smdistributed model parallelism, whose ranks mpirun starts",
    ),
    "smdistributed_dataparallel": ("mpi", "the job asks for smdistributed data parallelism, whose ranks mpirun starts"),
    "multi_worker_mirrored_strategy": ("tensorflow", "the job asks for multi_worker_mirrored_strategy"),
    "parameter_server": ("parameter-server", "the job asks for parameter_server"),
    "ray": ("ray", "the job asks for Ray"),
    "jax": ("jax", "the job asks for JAX"),
}

_SMDISTRIBUTED = {"smdistributed_dataparallel": "data", "smdistributed_modelparallel": "model"}
"""Kinds whose ranks torchrun can start as well."""

_TYPED_ACCELERATE: tuple[Launcher, str] = ("accelerate", "the program is `accelerate launch`")


class Choice(NamedTuple):
    """How this host's ranks are started.

    launcher: what starts them.
    slots: how many there are on this host; 0 outside the distribution group.
    reason: why this launcher, for ``muster plan``.
    """

    launcher: Launcher
    slots: int
    reason: str


def choose(
    job: Job,
    settings: Settings,
    devices: Devices,
    has: Callable[[str], bool],
    local: bool,
    environ: Mapping[str, str] = {},
    typed: bool = False,
) -> Choice:
    """The launcher and this host's slots.

    ``has`` asks the user's interpreter for a module, or this host for :data:`MPIRUN`; it is called only where the
    answer matters. ``local``: the user typed the program (``muster launch``, ``muster local``); a job without
    distribution settings then still uses all slots of all hosts. ``environ`` may have a TF_CONFIG by which some hosts
    run no rank, only a server. ``typed``: the program was given behind `accelerate launch`.

    Raises:
        LauncherError: no launcher of this release fits the job, or the launcher's module is missing.
        UsageError: TF_CONFIG is malformed, or a parameter-server job has more hosts than roles.
    """
    capacity = capacity_of(job, settings, devices)
    launcher, reason = _as_started(job, settings, typed) or (
        _TYPED_ACCELERATE if typed else _launcher(job, settings, capacity, has, local)
    )
    needed = NEEDED.get(launcher)
    if needed and job.in_group and not has(needed):
        raise LauncherError(
            f"launcher {launcher} ({reason}): the program's Python has no module {needed}; install {needed} for it, "
            "or pass --launcher script or --launcher ranks"
        )
    if settings.numa_binding and launcher != "torchrun":
        raise UsageError(
            f"--numa-binding={settings.numa_binding} (MUSTER_NUMA_BINDING) is torchrun's, and the launcher is "
            f"{launcher} ({reason}): leave it out, or pass --launcher torchrun"
        )
    slots = slots_of(job.current_host, launcher, job, settings, capacity, environ)
    return Choice(launcher, slots if job.in_group else 0, reason)


def _as_started(job: Job, settings: Settings, typed: bool) -> tuple[Launcher, str] | None:
    """The launcher for ranks that the platform has started; None where ranks are to be started.

    Raises:
        LauncherError: there is a process per rank already, and each is asked to start ranks.
    """
    started = job.started
    if started is None:
        return None
    asks = settings.launcher
    if asks in ("auto", *SUPERVISED) and settings.slots in (None, started.local_size):
        launcher: Launcher = "accelerate" if typed or asks == "accelerate" else "ranks"
        return launcher, f"the platform has started {plural(started.local_size, 'process')} on this host, one per rank"
    if started.local_size == 1:
        return None
    asked = f"--slots {settings.slots}" if asks in ("auto", *SUPERVISED) else f"--launcher {asks}"
    raise LauncherError(
        f"{asked}: the platform has started {started.local_size} processes on this host, one per rank, and each "
        "would start ranks of its own: leave the option out, or let the platform start one process per host "
        f"({platforms.load(job.platform).once_per_host})"
    )


def slots_of(
    host: str, launcher: Launcher, job: Job, settings: Settings, capacity: int, environ: Mapping[str, str] = {}
) -> int:
    """How many ranks ``host`` runs under ``launcher``; ``capacity`` is how many it can take."""
    if launcher not in ONE_PER_HOST:
        return capacity
    if launcher == "script":
        return 1
    if launcher in ("ray", "ssh"):
        return 1 if host == job.leader else 0
    from musterpoint.core.launch.tensorflow.config import existing_task
    from musterpoint.core.launch.tensorflow.tasks import ranks_on

    task = existing_task(environ)
    if task is not None:
        return 0 if task.serves else 1
    return ranks_on(host, job, settings) if launcher == "parameter-server" else 1


def _launcher(
    job: Job, settings: Settings, capacity: int, has: Callable[[str], bool], local: bool
) -> tuple[Launcher, str]:
    if settings.launcher != "auto":
        return settings.launcher, f"--launcher {settings.launcher} was given"
    kind = job.distribution.kind
    if settings.tf_roles and kind == "none":
        return "parameter-server", "--tf-roles was given"
    if kind in _SMDISTRIBUTED and not has(MPIRUN) and has("torch"):
        return "torchrun", (
            f"the job asks for smdistributed {_SMDISTRIBUTED[kind]} parallelism; there is no mpirun on PATH, and "
            "torchrun starts ranks of PyTorch as well"
        )
    if kind in _SMDISTRIBUTED and not has(MPIRUN) and has("tensorflow"):
        return "ranks", (
            f"the job asks for smdistributed {_SMDISTRIBUTED[kind]} parallelism; there is no mpirun on PATH, and "
            "ranks of TensorFlow need none"
        )
    if kind in _KINDS:
        return _KINDS[kind]
    if kind != "none":
        raise LauncherError(
            f"the job's distribution is {kind}, for which this release has no launcher: pass --launcher "
            "(or set MUSTER_LAUNCHER) to start the program with another one"
        )
    if not local:
        return "script", "the job names no distribution: the program runs once per host"
    return _for_typed_program(len(job.group_hosts), capacity, has)


def _for_typed_program(hosts: int, capacity: int, has: Callable[[str], bool]) -> tuple[Launcher, str]:
    if hosts == 1 and capacity == 1:
        return "script", "one slot on one host"
    world = f"{plural(hosts, 'host')} with {plural(capacity, 'slot')} each" if hosts > 1 else plural(capacity, "slot")
    if not has("torch"):
        others = ", --launcher ranks or --launcher tensorflow" if has("tensorflow") else " or --launcher ranks"
        raise LauncherError(
            f"{world} make a world of several ranks, but the program's Python has no module torch to start it "
            f"with torchrun: install torch, or pass --launcher script (once per host){others}"
        )
    return "torchrun", f"{world}, and the program's Python has torch"


def plural(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}{'es' if noun.endswith('s') else 's'}"


def wants_ssh(launcher: Launcher, settings: Settings) -> bool:
    """Whether the hosts of the group have ssh between them, if they are several."""
    return launcher == "ssh" or settings.ssh == "on"


def wanted_ports(launcher: Launcher, modules: frozenset[str], settings: Settings, job: Job) -> tuple[int, ...]:
    """The ports this host should offer in the roll call, each the preferred number; 0 stands for any free one.

    Raises:
        UsageError: a parameter-server job has more hosts than roles.
    """
    if launcher in TENSORFLOW:
        first, servers = _servers(launcher, settings, job)
        return tuple(first and first + place for place in range(servers))
    if launcher == "ray":
        return (0,) * len(RAY_PORTS)
    announced = settings.rollcall == "full" or len(job.hosts) == 1
    return (0,) * len(servers_of(launcher, modules)) if announced else ()


def agreed_ports(launcher: Launcher, modules: frozenset[str], master_port: int) -> tuple[int, ...]:
    """The ports of the leader's processes where no roll call announces any; TensorFlow has its own rules."""
    if launcher in TENSORFLOW:
        return ()
    return tuple(range(master_port, master_port + 1 + len(servers_of(launcher, modules))))


def servers_of(launcher: Launcher, modules: frozenset[str]) -> tuple[str, ...]:
    """Modules whose ranks meet at a server on the leader."""
    return tuple(name for name in RANKS_SERVERS if name in modules) if launcher in ("ranks", "jax") else ()


def modules_for(launcher: Launcher) -> tuple[str, ...]:
    """The Python modules that the plan of ``launcher`` depends on."""
    needed = NEEDED.get(launcher)
    return (*((needed,) if needed else ()), *USED.get(launcher, ()))


def option_for_ports(launcher: Launcher, settings: Settings) -> str:
    """The option that allows only the wanted ports; empty where any free ports will do."""
    if launcher not in TENSORFLOW:
        return ""
    if settings.tf_port:
        return f"--tf-port {settings.tf_port}"
    return "" if settings.rollcall == "full" else f"--rollcall {settings.rollcall}"


def _servers(launcher: Launcher, settings: Settings, job: Job) -> tuple[int, int]:
    """The first port, and how many TensorFlow servers this host has."""
    from musterpoint.core.launch.tensorflow.tasks import BESIDE, default_port, roles_of, tasks_of

    alone = len(job.group_hosts) == 1 and settings.tf_port is None
    first = default_port(launcher, job) if settings.tf_port is None else settings.tf_port
    if launcher == "tensorflow":
        return first, 0 if alone else 1
    if alone and not roles_of(job, settings):
        return 0, 0
    tasks = tasks_of(job, settings)
    own = [task for task in tasks if task.host == job.current_host and task.runs != BESIDE]
    return first, len(own)


def build_plan(inputs: LaunchInputs) -> LaunchPlan:
    """This host's launch plan. A host outside the distribution group runs the program with the launcher ``script``.

    Only the module of this launcher is imported.

    Raises:
        LauncherError: the launcher can't start this job here.
        UsageError: an option or a variable of the launcher's is wrong.
    """
    if not inputs.roster.seat.grouped:
        inputs = inputs._replace(launcher="script")
    launcher = inputs.launcher
    if launcher == "script":
        from musterpoint.core.launch.script import plan_script as plan
    elif launcher == "torchrun":
        from musterpoint.core.launch.torchrun import plan_torchrun as plan
    elif launcher == "ranks":
        from musterpoint.core.launch.ranks import plan_ranks as plan
    elif launcher == "mpi":
        from musterpoint.core.launch.mpi.plan import plan_mpi as plan
    elif launcher == "deepspeed":
        from musterpoint.core.launch.deepspeed import plan_deepspeed as plan
    elif launcher == "accelerate":
        from musterpoint.core.launch.accelerate import plan_accelerate as plan
    elif launcher == "ray":
        from musterpoint.core.launch.ray import plan_ray as plan
    elif launcher == "ssh":
        from musterpoint.core.launch.ssh import plan_ssh as plan
    elif launcher == "jax":
        from musterpoint.core.launch.jax import plan_jax as plan
    elif launcher == "tensorflow":
        from musterpoint.core.launch.tensorflow.workers import plan_tensorflow as plan
    else:
        from musterpoint.core.launch.tensorflow.parameter_server import plan_parameter_server as plan
    made = _without_mpi(inputs, plan(inputs))
    if launcher != "mpi" and inputs.roster.seat.grouped:
        made = _with_mpi_options(inputs, made)
    made = _with_local_rank(inputs, made)
    if inputs.roster.seat.grouped and wants_ssh(launcher, inputs.settings):
        from musterpoint.core.launch.ssh import with_ssh

        made = with_ssh(inputs, made)
    if not platforms.load(inputs.job.platform).unexpanded or not any("$" in word for word in inputs.workspace.argv):
        return made
    from musterpoint.core.launch.expansion import expand

    return expand(made, inputs.environ)


def _with_mpi_options(inputs: LaunchInputs, plan: LaunchPlan) -> LaunchPlan:
    """The plan with the variables that options for mpirun give every rank, and a note about the other options."""
    given, more = inputs.job.distribution, inputs.settings.mpi_options
    if not given.options and not more:
        return plan
    from musterpoint.core.launch.mpi.options import without_mpi

    exports, rest = without_mpi(given, more)
    own = {setting.name for process in plan.processes for setting in process.environment}
    environment = {setting.name: setting for setting in plan.environment}
    environment.update((setting.name, setting) for setting in exports if setting.name not in own)
    where = " and ".join(
        name for name, text in (("custom_mpi_options", given.options), ("--mpi-options", more)) if text
    )
    by = f"launcher {plan.launcher}" if plan.launcher != "torchrun" else "torchrun"
    note = (f"{where}: {rest} isn't followed: {by} starts the ranks",) if rest else ()
    return plan._replace(environment=tuple(environment.values()), notes=(*plan.notes, *note))


def _with_local_rank(inputs: LaunchInputs, plan: LaunchPlan) -> LaunchPlan:
    """``plan`` with ``--local_rank=N`` behind a script's or module's name, where the settings or DeepSpeed want it."""
    wanted = inputs.settings.local_rank or ("argument" if inputs.launcher == "deepspeed" else "variable")
    flag = "--local-rank" if wanted == "dashed" else "--local_rank"
    at = {"python": 2, "module": 3}.get(inputs.workspace.kind, -1)
    if wanted == "variable" or at < 0:
        return plan
    if plan.foreign:
        runner = 2 if inputs.launcher == "mpi" and "mpi4py" in inputs.modules else 0  # words before the script's name
        return plan._replace(local_rank_at=at + runner, local_rank_flag=flag)
    processes = tuple(told_local_rank(process, inputs.workspace.argv, at, flag) for process in plan.processes)
    at = at if plan.of_others else plan.local_rank_at
    return plan._replace(processes=processes, local_rank_at=at, local_rank_flag=flag)


MPI_VARIABLES = ("OMPI_", "PMIX_", "PMI_", "MPI_LOCAL", "ORTE_", "PRTE_", "HYDI_", "HYDRA_", "I_MPI_HYDRA_")
"""How the variables begin by which an mpirun identifies the processes that it has started."""
_IDENTITY = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_RANK")


def _without_mpi(inputs: LaunchInputs, plan: LaunchPlan) -> LaunchPlan:
    """``plan`` without the variables of a rank that the platform started this process as, where ranks are started."""
    if inputs.job.started is None or inputs.started is not None:
        return plan
    own = {name for name in inputs.environ if name in _IDENTITY}
    if plan.launcher != "script":
        own |= {name for name in inputs.environ if name.startswith(MPI_VARIABLES)}
    return plan._replace(unset=tuple(dict.fromkeys((*plan.unset, *sorted(own)))))
