"""What Slurm's variables say about a task, for ranks: srun counted one task per host, and ranks are one per slot.

Scripts, Lightning and JAX take ``SLURM_PROCID`` for their rank and ``SLURM_NTASKS`` for the world size. Where the ranks
are ours, they get the numbers that srun would give them with one task per slot; else none.
"""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING, Iterable

from musterpoint.fabric.setting import EnvSetting
from musterpoint.job.slurm import in_step
from musterpoint.launch.plan import ONE_PER_HOST

if TYPE_CHECKING:
    from musterpoint.launch.inputs import LaunchInputs

TASK = (
    "SLURM_PROCID", "SLURM_LOCALID", "SLURM_NTASKS", "SLURM_NPROCS", "SLURM_NTASKS_PER_NODE", "SLURM_TASKS_PER_NODE",
    "SLURM_STEP_NUM_TASKS", "SLURM_STEP_TASKS_PER_NODE", "SLURM_GTIDS", "SLURM_TASK_PID",
)  # fmt: skip
"""The variables that number the tasks of a step."""


def misleading(inputs: LaunchInputs) -> tuple[str, ...]:
    """Those of :data:`TASK` that don't fit this host's ranks; none where a step has one task, and one program, per
    host.
    """
    if inputs.launcher in ONE_PER_HOST and in_step(inputs.environ):
        return ()
    return tuple(name for name in TASK if name in inputs.environ)


def task_settings(inputs: LaunchInputs, local_rank: int) -> tuple[EnvSetting, ...]:
    """The variables of a rank that we start ourselves, as of a task."""
    roster = inputs.roster
    slots = [seat.slots for seat in roster.group]
    rank, world, per_node = roster.first_rank + local_rank, str(roster.world_size), per_host(slots)
    numbered = "as srun numbers one task per slot"
    return (
        EnvSetting("SLURM_PROCID", str(rank), f"the rank, {numbered}"),
        EnvSetting("SLURM_LOCALID", str(local_rank), "the slot, likewise"),
        EnvSetting("SLURM_NODEID", str(roster.node_rank), "this host's place in the group"),
        EnvSetting("SLURM_NTASKS", world, f"the world size, {numbered}"),
        EnvSetting("SLURM_NPROCS", world, "the same, by its older name"),
        EnvSetting("SLURM_STEP_NUM_TASKS", world, "the same, of this step"),
        EnvSetting("SLURM_TASKS_PER_NODE", per_node, "slots of every host"),
        EnvSetting("SLURM_STEP_TASKS_PER_NODE", per_node, "the same, of this step"),
        *((EnvSetting("SLURM_NTASKS_PER_NODE", str(slots[0]), "the same, where it is one number"),)
          if len(set(slots)) == 1 else ()),
    )  # fmt: skip


def per_host(counts: Iterable[int]) -> str:
    """Counts of the hosts in order, as Slurm writes them: ``2(x3),1``."""
    groups = ((count, len(list(group))) for count, group in groupby(counts))
    return ",".join(f"{count}(x{times})" if times > 1 else str(count) for count, times in groups)
