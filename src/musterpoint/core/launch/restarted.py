"""Ranks that a launcher has started in the first attempt, started again without it.

torchrun's agent and DeepSpeed's launcher give ranks their numbers and a few variables, and need seconds for it, nearly
all of which is the import of torch. In later attempts a rank gets from here what it got from them.
"""

from __future__ import annotations

from typing import Callable

from musterpoint.core.fabric.setting import EnvSetting
from musterpoint.core.launch.identity import IDENTITY, identity
from musterpoint.core.launch.inputs import LaunchInputs
from musterpoint.core.launch.plan import LaunchPlan, rank_process


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
