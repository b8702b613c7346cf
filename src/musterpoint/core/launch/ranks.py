"""``ranks``: this host's supervisor starts every rank itself, with the variables ``env://`` reads."""

from __future__ import annotations

from musterpoint.core.fabric.setting import EnvSetting
from musterpoint.core.job.platform import RankPlace
from musterpoint.core.launch.horovod import Gloo, plan_gloo
from musterpoint.core.launch.inputs import LaunchInputs
from musterpoint.core.launch.meeting import rendezvous
from musterpoint.core.launch.plan import LaunchPlan, ProcessPlan, rank_process
from musterpoint.core.launch.xgboost import Tracker, plan_tracker

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

RUN_ID = "TORCHELASTIC_RUN_ID"


def plan_ranks(inputs: LaunchInputs) -> LaunchPlan:
    """This host's plan: one process per slot, or those that the platform has started."""
    started = inputs.started
    if started is not None:
        from musterpoint.core.launch.started import plan_started

        return plan_started(inputs, started)
    gloo, tracker = plan_gloo(inputs), plan_tracker(inputs)
    ranks = (_process(inputs, gloo, tracker, local_rank) for local_rank in range(inputs.roster.seat.slots))
    run_id = EnvSetting(
        RUN_ID,
        inputs.job.name or "muster",
        "as under torchrun: Lightning then refuses devices or num_nodes that don't fit",
    )
    common = inputs.program_environment(*gloo.environment, *tracker.environment, run_id)
    plan = inputs.plan(
        (*gloo.services, *tracker.services, *ranks),
        tuple(setting for setting in common if setting.name not in IDENTITY),
        notes=gloo.notes,
    )
    # Horovod's ranks meet at a port of their own
    return plan if gloo.environment else plan._replace(meeting=rendezvous(inputs))


def _process(inputs: LaunchInputs, gloo: Gloo, tracker: Tracker, local_rank: int) -> ProcessPlan:
    settings = (
        *identity(inputs, local_rank),
        *_of_platform(inputs, local_rank),
        *(gloo.identities[local_rank] if gloo.identities else ()),
        *(tracker.identities[local_rank] if tracker.identities else ()),
    )
    return rank_process(inputs.workspace, inputs.roster.first_rank + local_rank, settings, local_rank)


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


def _of_platform(inputs: LaunchInputs, local_rank: int) -> tuple[EnvSetting, ...]:
    """The variables by which the platform itself would number this rank."""
    numbers, roster = inputs.platform.numbers, inputs.roster
    if numbers is None:
        return ()
    slots = tuple(seat.slots for seat in roster.group)
    place = RankPlace(roster.first_rank + local_rank, local_rank, roster.node_rank, slots)
    return tuple(EnvSetting(*variable) for variable in numbers.of_rank(inputs.environ, place))
