"""``script``: the program once per host, as the platforms define a job that names no distribution.

RANK and LOCAL_RANK are never set: a program that starts its own ranks (Lightning, accelerate) takes them as a sign
that somebody else already did.
"""

from __future__ import annotations

from musterpoint.fabric.setting import EnvSetting
from musterpoint.launch.inputs import LaunchInputs
from musterpoint.launch.plan import LaunchPlan, ProcessPlan
from musterpoint.launch.stub import program_arguments


def plan_script(inputs: LaunchInputs) -> LaunchPlan:
    """This host's one process. A host outside the distribution group gets the same, without the group's variables."""
    roster, workspace = inputs.roster, inputs.workspace
    rank = _rank(inputs)
    process = ProcessPlan(
        "rank", f"rank {rank}", program_arguments(workspace.argv), cwd=workspace.cwd, rank=rank, local_rank=0
    )
    return LaunchPlan(
        launcher="script",
        host=roster.me,
        processes=(process,),
        environment=inputs.environment_of(*_meeting_point(inputs)),
        local_ranks=1,
        world_size=roster.world_size,
        first_rank=rank,
        user_cwd=workspace.cwd,
        user_pythonpath=inputs.pythonpath,
        tolerates_lost_peers=True,
    )


def _rank(inputs: LaunchInputs) -> int:
    """The rank by which this process is known to us; hosts outside the group are numbered after the group's ranks."""
    roster = inputs.roster
    if roster.seat.grouped:
        return roster.first_rank
    outside = [seat.name for seat in roster.seats if not seat.grouped]
    return roster.world_size + outside.index(roster.me)


def _meeting_point(inputs: LaunchInputs) -> tuple[EnvSetting, ...]:
    if inputs.hosts == 1 or not inputs.roster.seat.grouped:
        return ()
    return (
        EnvSetting("MASTER_ADDR", inputs.master_address, "the leader, for programs that start their own ranks"),
        EnvSetting("MASTER_PORT", str(inputs.roster.master_port), "free on the leader"),
        EnvSetting("NODE_RANK", str(inputs.roster.node_rank), "this host's place in the group"),
        EnvSetting("NNODES", str(inputs.hosts), "hosts in the group"),
        EnvSetting("NPROC_PER_NODE", str(inputs.room), "ranks this host has room for"),
    )
