"""``script``: the program once per host, as the platforms define a job that names no distribution.

RANK and LOCAL_RANK are never set: programs that start their own ranks (Lightning, accelerate) would take it that the
ranks are already started.
"""

from __future__ import annotations

from musterpoint.core.fabric.setting import EnvSetting
from musterpoint.core.launch.inputs import LaunchInputs, capacity_of
from musterpoint.core.launch.launch_plan import LaunchPlan, rank_process
from musterpoint.core.launch.launcher import Launcher
from musterpoint.core.launch.rendezvous import of_independent


def plan_script(inputs: LaunchInputs) -> LaunchPlan:
    """This host's plan: one process. On a host outside the distribution group it lacks the group's variables."""
    rank = _rank(inputs)
    plan = inputs.plan((rank_process(inputs.workspace, rank),), inputs.program_environment(*_meeting_point(inputs)))
    meeting = of_independent(inputs) if inputs.roster.seat.grouped else None
    return plan._replace(local_ranks=1, first_rank=rank, meeting=meeting)


def _rank(inputs: LaunchInputs) -> int:
    """The process's rank in the supervisor's table; hosts outside the group are numbered after the group's ranks."""
    roster = inputs.roster
    if roster.seat.grouped:
        return roster.first_rank
    outside = [seat.name for seat in roster.seats if not seat.grouped]
    return roster.world_size + outside.index(roster.me)


def _meeting_point(inputs: LaunchInputs) -> tuple[EnvSetting, ...]:
    if inputs.hosts == 1 or not inputs.roster.seat.grouped:
        return ()
    capacity = capacity_of(inputs.job, inputs.settings, inputs.devices)
    return (
        EnvSetting("MASTER_ADDR", inputs.master_address, "the leader, for programs that start their own ranks"),
        EnvSetting("MASTER_PORT", str(inputs.roster.master_port), "free on the leader"),
        EnvSetting("NODE_RANK", str(inputs.roster.node_rank), "this host's place in the group"),
        EnvSetting("NNODES", str(inputs.hosts), "hosts in the group"),
        EnvSetting("NPROC_PER_NODE", str(capacity), "ranks this host has room for"),
    )


LAUNCHER = Launcher(
    name="script",
    summary="the program once per host, as independent programs",
    starts="host",
    plan=plan_script,
    independent=True,
)
