"""Reads the job from the ``SLURM_*`` variables of a job step: ``srun --ntasks-per-node=1 muster launch …``.

Sources: the manuals of ``srun`` and ``sbatch``, and the variables that Slurm 22.05 sets.
"""

from __future__ import annotations

from itertools import groupby
from typing import Iterable, Mapping

from musterpoint.base.errors import UsageError
from musterpoint.base.settings import Settings
from musterpoint.core.job.fields import first_set, shown, small_text, wrong
from musterpoint.core.job.model import Counted, Distribution, EntryPoint, Job, Note, Paths
from musterpoint.core.job.opt_ml import base_of, paths_of
from musterpoint.core.job.other_platforms import refuse_started_ranks, shown_variables
from musterpoint.core.job.platform import DocsRow, Numbers, Platform, RankPlace, StartedBy
from musterpoint.core.job.rosters import port_of
from musterpoint.core.job.slurm_step import (
    NODES_OF_JOB,
    NODES_OF_STEP,
    in_step,
    job_id,
    left_out,
    srun_line,
    step_of,
    without_srun,
)

NAME = "slurm"
CONFIGURATIONS = ("/etc/slurm/slurm.conf", "/run/slurm/conf/slurm.conf", "/etc/slurm-llnl/slurm.conf")
"""Where Slurm has its configuration, if SLURM_CONF doesn't say so."""
_KILL_WAIT = 30.0
"""Slurm's default of KillWait: seconds between SIGTERM and SIGKILL."""
_THIS_NODE = ("SLURMD_NODENAME", "SLURM_NODEID")
_GPUS = ("SLURM_GPUS_ON_NODE", "SLURM_GPUS_PER_NODE")


def read_job(environ: Mapping[str, str], settings: Settings, _base: str = "") -> Job:
    """The job of this step, or of the one node of a batch script without ``srun``.

    Raises:
        UsageError: a variable is malformed or missing; several hosts were allocated and this process wasn't started on
            all of them.
    """
    by_srun, grace, port = in_step(environ), kill_wait(environ), _port(environ)
    step = step_of(environ) if by_srun else without_srun(environ)
    _refuse_mpirun(environ, len(step.nodes))
    of_step = f".{environ['SLURM_STEP_ID']}" if by_srun else ""
    used = (NODES_OF_STEP if by_srun else NODES_OF_JOB, _THIS_NODE, _GPUS)
    return Job(
        platform=NAME,
        name=_name(environ) + of_step,
        hosts=step.nodes,
        current_host=step.current,
        group_hosts=step.nodes,
        entry_point=EntryPoint(""),
        distribution=Distribution(processes_per_host=step.here if step.started else None),
        paths=paths_of(base_of(environ)) if environ.get("SAGEMAKER_BASE_DIR") else Paths(),
        grace=grace,
        notes=(
            _read_from(environ, used, grace, port),
            *(left_out(environ, step) if by_srun else _unused_tasks(environ)),
        ),
        counted=_counted(environ),
        rollcall_port=port,
        started=step.started,
        place="" if step.started else environ.get("SLURM_TOPOLOGY_ADDR", ""),
    )


def kill_wait(environ: Mapping[str, str]) -> float:
    """Seconds between SIGTERM and SIGKILL, by Slurm's configuration where this host has it."""
    for path in filter(None, (environ.get("SLURM_CONF"), *CONFIGURATIONS)):
        configuration = small_text(path)
        for line in configuration.splitlines():
            name, _, value = line.partition("#")[0].partition("=")
            if name.strip().lower() == "killwait" and value.strip().isdecimal():
                return float(value)
        if configuration:
            break
    return _KILL_WAIT


def _port(environ: Mapping[str, str]) -> int:
    """A port of the step's own."""
    return port_of(job_id(environ), environ.get("SLURM_STEP_ID", ""))


def _refuse_mpirun(environ: Mapping[str, str], nodes: int) -> None:
    """An mpirun inside of the job would start one job after another here, of one host each."""
    for name in ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "MV2_COMM_WORLD_SIZE"):
        size = environ.get(name, "")
        if size.isdecimal() and (len(size) > 9 or int(size) > nodes):
            raise UsageError(
                f"{shown_variables([(name, size)])}: an mpirun started this process, and others like it; expected one "
                f"on each node, which starts all ranks itself: {srun_line(nodes)}, with --launcher mpi for programs "
                "that use MPI"
            )
    if environ.get("TORCHELASTIC_RUN_ID"):  # torchrun's alone: RANK and LOCAL_RANK come from containers' hooks, too
        refuse_started_ranks(environ)


def _counted(environ: Mapping[str, str]) -> Counted:
    """This node's GPUs as Slurm allocated them (``4``, or ``a100:4`` by type)."""
    name = first_set(environ, _GPUS)
    if not name:
        return Counted()
    gpus = 0
    for part in environ[name].split(","):
        number = part.rpartition(":")[2]
        if not (number.isascii() and number.isdecimal() and len(number) < 6):
            raise wrong(name, environ[name], "a number of GPUs, such as 4 or a100:4")
        gpus += int(number)
    return Counted(gpus, name) if gpus else Counted()


def _read_from(environ: Mapping[str, str], used: Iterable[tuple[str, ...]], grace: float, port: int) -> Note:
    """Which variables the job was read from: of each of ``used`` the first that is set."""
    names = (first_set(environ, either) for either in used)
    named = ", ".join(f"{name}={environ[name]}" for name in names if name)
    seconds = f"{grace:g} s between SIGTERM and SIGKILL (KillWait)"
    return Note("plan", f"Slurm: {named}; {seconds}; the roll call is at port {port}")


def _unused_tasks(environ: Mapping[str, str]) -> tuple[Note, ...]:
    """That several tasks were asked for, where srun started none of them."""
    tasks = environ.get("SLURM_NTASKS", "1")
    if tasks == "1":
        return ()
    words = (
        f"SLURM_NTASKS={shown(tasks).strip(chr(34))} counts what srun would start, and this process was started "
        "without srun: its ranks are this node's slots"
    )
    return (Note("info", words),)


_OF_ONE_TASK = ("SLURM_GTIDS", "SLURM_TASK_PID")
TASKS = (
    "SLURM_PROCID",
    "SLURM_LOCALID",
    "SLURM_NTASKS",
    "SLURM_NPROCS",
    "SLURM_NTASKS_PER_NODE",
    "SLURM_TASKS_PER_NODE",
    "SLURM_STEP_NUM_TASKS",
    "SLURM_STEP_TASKS_PER_NODE",
    *_OF_ONE_TASK,
)
"""The variables that number the tasks of a step: scripts, Lightning and JAX take them for ranks."""


def _stale(environ: Mapping[str, str], started_by: StartedBy) -> tuple[str, ...]:
    if started_by == "once" and in_step(environ):
        return ()
    # each rank that we start gets the others anew
    gone = ("SLURM_NTASKS_PER_NODE", *_OF_ONE_TASK) if started_by == "ranks" else TASKS
    return tuple(name for name in gone if name in environ)


def _of_rank(_environ: Mapping[str, str], place: RankPlace) -> tuple[tuple[str, str, str], ...]:
    slots = place.slots
    world, per_node = str(sum(slots)), per_host(slots)
    numbered = "as srun numbers one task per slot"
    even = (("SLURM_NTASKS_PER_NODE", str(slots[0]), "slots of every host, which all have as many"),)
    return (
        ("SLURM_PROCID", str(place.rank), f"the rank, {numbered}"),
        ("SLURM_LOCALID", str(place.local_rank), f"the slot, {numbered}"),
        ("SLURM_NODEID", str(place.node_rank), "this host's place in the group"),
        ("SLURM_NTASKS", world, f"the world size, {numbered}"),
        ("SLURM_NPROCS", world, f"the world size, {numbered}; NTASKS' older name"),
        ("SLURM_STEP_NUM_TASKS", world, f"the world size, {numbered}"),
        ("SLURM_TASKS_PER_NODE", per_node, "slots of every host"),
        ("SLURM_STEP_TASKS_PER_NODE", per_node, "slots of every host"),
        *(even if len(set(slots)) == 1 else ()),
    )


def per_host(counts: Iterable[int]) -> str:
    """Counts of the hosts in order, as Slurm writes them: ``2(x3),1``."""
    groups = ((count, len(list(group))) for count, group in groupby(counts))
    return ",".join(f"{count}(x{times})" if times > 1 else str(count) for count, times in groups)


def _name(environ: Mapping[str, str]) -> str:
    return f"{environ.get('SLURM_JOB_NAME') or 'slurm'}-{job_id(environ)}"


def _joined(job: Job, environ: Mapping[str, str]) -> Job:
    """Several steps as one job: named and met as the allocation, since each has a number of its own."""
    allocation = {name: text for name, text in environ.items() if name != "SLURM_STEP_ID"}
    notes = tuple(note for note in job.notes if note.level != "warning")  # of nodes that the step leaves out
    return job._replace(name=_name(environ), rollcall_port=_port(allocation), notes=notes)


def _found(environ: Mapping[str, str], _base: str) -> bool:
    """An allocation or a step; or a task's number, where a container was given no more of Slurm's variables."""
    named = ("SLURM_JOB_ID", "SLURM_JOBID", "SLURM_STEP_ID", "SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST")
    numbers = (
        ("SLURM_NTASKS", "1"),
        ("SLURM_NNODES", "1"),
        ("SLURM_PROCID", "0"),
        ("SLURM_NODEID", "0"),
        ("SLURM_LOCALID", "0"),
    )
    return any(map(environ.get, named)) or any(environ.get(name, alone) not in ("", alone) for name, alone in numbers)


PLATFORM = Platform(
    name=NAME,
    title="Slurm",
    joined=_joined,
    read=read_job,
    variables=("SLURM", "PMIX_", "PMI_"),
    found=_found,
    numbers=Numbers(_stale, _of_rank),
    once_per_host="srun --ntasks-per-node=1",
    row=DocsRow(
        "slurm.md",
        "`SLURM_STEP_*`, `SLURMD_NODENAME`, `SLURM_GPUS_ON_NODE`; `KillWait` in `slurm.conf`",
        "`srun --ntasks-per-node=1 muster launch …`",
        "a batch script of several nodes without `srun` is refused",
        reports="`muster-jobs/JOB/hosts/HOST/failure`",
    ),
)
