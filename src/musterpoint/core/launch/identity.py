"""Who a rank is: the variables of ``env://`` and those that torchrun sets beside them."""

from __future__ import annotations

from typing import Callable

from musterpoint.core.fabric.setting import EnvSetting
from musterpoint.core.launch.inputs import LaunchInputs
from musterpoint.core.launch.launch_plan import LaunchPlan, rank_process

IDENTITY = (
    "RANK",
    "LOCAL_RANK",
    "WORLD_SIZE",
    "LOCAL_WORLD_SIZE",
    "NODE_RANK",
    "GROUP_RANK",
    "MASTER_ADDR",
    "MASTER_PORT",
)
"""The variables that identify a rank. Existing values belong to another job and are replaced, as in torchrun."""


def identity(inputs: LaunchInputs, local_rank: int) -> tuple[EnvSetting, ...]:
    """Who a rank is: the values of :data:`IDENTITY`."""
    roster = inputs.roster
    return (
        EnvSetting("RANK", str(roster.first_rank + local_rank), "global rank: hosts in order, then slots"),
        EnvSetting("LOCAL_RANK", str(local_rank), "slot on this host; the program picks its device by it"),
        EnvSetting("WORLD_SIZE", str(roster.world_size), "slots of all hosts in the group"),
        EnvSetting("LOCAL_WORLD_SIZE", str(roster.seat.slots), "slots of this host"),
        EnvSetting("NODE_RANK", str(roster.node_rank), "this host's place in the group"),
        EnvSetting("GROUP_RANK", str(roster.node_rank), "this host's place in the group, by torchrun's name"),
        EnvSetting("MASTER_ADDR", inputs.master_address, "where rank 0 listens"),
        EnvSetting("MASTER_PORT", str(roster.master_port), "free on the leader"),
    )


def plan_restarted(
    inputs: LaunchInputs, of_rank: Callable[[int], tuple[EnvSetting, ...]], unset: tuple[str, ...] = ()
) -> LaunchPlan:
    """This host's plan: a rank per slot, each started by the supervisor.

    ``of_rank`` gives the launcher's own variables for a global rank; ``unset`` are those that no rank gets.
    """
    first, own = inputs.roster.first_rank, set(IDENTITY)
    ranks = []
    for local_rank in range(inputs.roster.seat.slots):
        settings = (*identity(inputs, local_rank), *of_rank(first + local_rank))
        own.update(setting.name for setting in settings)
        ranks.append(rank_process(inputs.workspace, first + local_rank, settings, local_rank))
    common = tuple(setting for setting in inputs.program_environment() if setting.name not in own)
    return inputs.plan(tuple(ranks), common, unset)
