"""Which launcher starts this job's ranks, and how many of them per host."""

from typing import Callable, Mapping, NamedTuple

from musterpoint.errors import LauncherError
from musterpoint.fabric.devices import Devices
from musterpoint.job.model import Job
from musterpoint.launch.plan import ONE_PER_HOST
from musterpoint.settings import Launcher, Settings

WANTED: dict[Launcher, str] = {"torchrun": "torch", "mpi": "mpi4py", "ranks": "horovod", "deepspeed": "deepspeed"}
"""The module of the user's Python that matters to a launcher."""

MPIRUN = "mpirun"
"""Asked for as a module is: whether this host has an MPI."""

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
}


class Choice(NamedTuple):
    """How this host's ranks are started.

    launcher: by what.
    slots: how many ranks; 0 outside the distribution group.
    reason: why by that, for ``muster plan``.
    """

    launcher: Launcher
    slots: int
    reason: str


def choose(
    job: Job, settings: Settings, devices: Devices, has: Callable[[str], bool], local: bool,
    environ: Mapping[str, str] = {},
) -> Choice:  # fmt: skip
    """The launcher and this host's slots.

    ``has`` asks the user's interpreter for a module, or this host for :data:`MPIRUN`; it is called only where the
    answer matters. ``local`` is true where the user typed the program himself (``muster launch``, ``muster local``): a
    job without distribution settings then still gets a world as large as its slots and hosts. ``environ`` may have a
    TF_CONFIG, by which some hosts only serve the others.

    Raises:
        LauncherError: no launcher of this release fits the job, or its module is missing.
        UsageError: TF_CONFIG is malformed, or a parameter-server job has more hosts than roles.
    """
    capacity = capacity_of(job, settings, devices)
    launcher, reason = _launcher(job, settings, capacity, has, local)
    if launcher in ("torchrun", "deepspeed") and job.in_group and not has(WANTED[launcher]):
        raise LauncherError(
            f"launcher {launcher} ({reason}): the program's Python has no module {WANTED[launcher]}; install "
            f"{WANTED[launcher]} for it, or pass --launcher script or --launcher ranks"
        )
    slots = slots_of(job.current_host, launcher, job, settings, capacity, environ)
    return Choice(launcher, slots if job.in_group else 0, reason)


def slots_of(
    host: str, launcher: Launcher, job: Job, settings: Settings, capacity: int, environ: Mapping[str, str] = {}
) -> int:
    """How many ranks ``host`` runs under ``launcher``; ``capacity`` is how many it can take."""
    if launcher not in ONE_PER_HOST:
        return capacity
    if launcher == "script":
        return 1
    from musterpoint.launch.tensorflow.config import given
    from musterpoint.launch.tensorflow.tasks import ranks_on

    found = given(environ)
    if found is not None:
        return 0 if found.serves else 1
    return ranks_on(host, job, settings) if launcher == "parameter-server" else 1


def capacity_of(job: Job, settings: Settings, devices: Devices) -> int:
    """How many ranks this host can take: by the settings, else the job, another toolkit's count, or the devices."""
    return settings.slots or job.distribution.processes_per_host or job.counted.slots or devices.slots


def miscounted(job: Job, settings: Settings, devices: Devices) -> str:
    """The warning where another toolkit's count decides and isn't what this host has; else empty."""
    slots, variable = job.counted
    here, noun = (devices.neuron_cores, "Neuron core") if "NEURON" in variable else (devices.gpus, "GPU")
    if not variable or slots == here or settings.slots or job.distribution.processes_per_host:
        return ""
    capacity = _count(capacity_of(job, settings, devices), "slot")
    return (
        f"warning: {variable} is {slots}, but {_count(here, noun)} can be seen on this host: it has {capacity} all the "
        "same (--slots or MUSTER_SLOTS says how many)"
    )


def _launcher(
    job: Job, settings: Settings, capacity: int, has: Callable[[str], bool], local: bool
) -> tuple[Launcher, str]:
    if settings.launcher != "auto":
        return settings.launcher, f"--launcher {settings.launcher} was given"
    kind = job.distribution.kind
    if settings.tf_roles and kind == "none":
        return "parameter-server", "--tf-roles was given"
    if kind == "smdistributed_dataparallel" and not has(MPIRUN) and has("torch"):
        return "torchrun", (
            "the job asks for smdistributed data parallelism; there is no mpirun on PATH, and torchrun starts ranks "
            "of PyTorch as well"
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
    world = f"{_count(hosts, 'host')} with {_count(capacity, 'slot')} each" if hosts > 1 else _count(capacity, "slot")
    if not has("torch"):
        others = ", --launcher ranks or --launcher tensorflow" if has("tensorflow") else " or --launcher ranks"
        raise LauncherError(
            f"{world} make a world of several ranks, but the program's Python has no module torch to start it "
            f"with torchrun: install torch, or pass --launcher script (once per host){others}"
        )
    return "torchrun", f"{world}, and the program's Python has torch"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
