"""The variables with which a platform numbers the processes that it starts, for ranks: it counted one per host.

Scripts, Lightning and JAX take ``SLURM_PROCID`` for their rank and ``SLURM_NTASKS`` for the world size; scripts for
Kubeflow's JAX and XGBoost runtimes read ``JAX_PROCESS_ID`` or ``DMLC_TASK_ID``. Ranks that the supervisor starts itself
get the numbers that the platform would give them if it started one process per slot; those of other launchers get none.
"""

from __future__ import annotations

from itertools import groupby
from typing import Iterable, Mapping

from musterpoint.base.settings import Launcher
from musterpoint.core.fabric.setting import EnvSetting
from musterpoint.core.job.slurm import in_step
from musterpoint.core.launch.plan import ONE_PER_HOST, SUPERVISED
from musterpoint.core.rollcall.roster import Roster

_OF_ONE_TASK = ("SLURM_GTIDS", "SLURM_TASK_PID")
SLURM = (
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
"""The variables that number the tasks of a step."""
KUBEFLOW = (("JAX_PROCESS_ID", "JAX_NUM_PROCESSES"), ("DMLC_TASK_ID", "DMLC_NUM_WORKER"))
"""A TrainJob's process and how many there are, by runtime."""


def misleading(platform: str, launcher: Launcher, environ: Mapping[str, str]) -> tuple[str, ...]:
    """The platform's numbers in this host's environment that don't fit its ranks.

    None where there is one program per host, as the platform counted.
    """
    if platform == "slurm":
        if launcher in ONE_PER_HOST and in_step(environ):
            return ()
        if launcher in SUPERVISED:  # which sets the others for each rank
            return tuple(name for name in ("SLURM_NTASKS_PER_NODE", *_OF_ONE_TASK) if name in environ)
        return tuple(name for name in SLURM if name in environ)
    if platform == "kubeflow" and launcher not in (*ONE_PER_HOST, *SUPERVISED):
        return tuple(name for pair in KUBEFLOW for name in pair if name in environ)
    return ()


def numbers(platform: str, environ: Mapping[str, str], roster: Roster, local_rank: int) -> tuple[EnvSetting, ...]:
    """The variables of a rank that the supervisor starts itself, as of a process that the platform started."""
    if platform == "slurm":
        return _of_task(roster, local_rank)
    if platform != "kubeflow":
        return ()
    rank, world = str(roster.first_rank + local_rank), str(roster.world_size)
    return tuple(
        setting
        for process, count in KUBEFLOW
        if count in environ
        for setting in (
            EnvSetting(process, rank, "the rank, as of a pod with one process"),
            EnvSetting(count, world, "the world size, as of pods with one process each"),
        )
    )


def _of_task(roster: Roster, local_rank: int) -> tuple[EnvSetting, ...]:
    slots = [seat.slots for seat in roster.group]
    rank, world, per_node = roster.first_rank + local_rank, str(roster.world_size), per_host(slots)
    numbered = "as srun numbers one task per slot"
    return (
        EnvSetting("SLURM_PROCID", str(rank), f"the rank, {numbered}"),
        EnvSetting("SLURM_LOCALID", str(local_rank), f"the slot, {numbered}"),
        EnvSetting("SLURM_NODEID", str(roster.node_rank), "this host's place in the group"),
        EnvSetting("SLURM_NTASKS", world, f"the world size, {numbered}"),
        EnvSetting("SLURM_NPROCS", world, f"the world size, {numbered}; NTASKS' older name"),
        EnvSetting("SLURM_STEP_NUM_TASKS", world, f"the world size, {numbered}"),
        EnvSetting("SLURM_TASKS_PER_NODE", per_node, "slots of every host"),
        EnvSetting("SLURM_STEP_TASKS_PER_NODE", per_node, "slots of every host"),
        *(
            (EnvSetting("SLURM_NTASKS_PER_NODE", str(slots[0]), "slots of every host, which all have as many"),)
            if len(set(slots)) == 1
            else ()
        ),
    )


def per_host(counts: Iterable[int]) -> str:
    """Counts of the hosts in order, as Slurm writes them: ``2(x3),1``."""
    groups = ((count, len(list(group))) for count, group in groupby(counts))
    return ",".join(f"{count}(x{times})" if times > 1 else str(count) for count, times in groups)
