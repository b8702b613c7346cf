"""``script``: the program once per host, as the platforms define a job that names no distribution.

RANK and LOCAL_RANK are never set: a program that starts its own ranks (Lightning, accelerate) takes them as a sign
that somebody else already did.
"""

from __future__ import annotations

from musterpoint.fabric.setting import EnvSetting
from musterpoint.launch.plan import LaunchPlan, ProcessPlan
from musterpoint.launch.site import Site
from musterpoint.launch.stub_command import program_arguments


def plan_script(site: Site) -> LaunchPlan:
    """This host's one process. A host outside the distribution group gets the same, without the group's variables."""
    roster, workspace = site.roster, site.workspace
    rank = _rank(site)
    process = ProcessPlan(
        "rank", f"rank {rank}", program_arguments(workspace.argv), cwd=workspace.cwd, rank=rank, local_rank=0
    )
    return LaunchPlan(
        launcher="script",
        host=roster.me,
        processes=(process,),
        environment=site.environment_of(*_meeting_point(site)),
        local_ranks=1,
        world_size=roster.world_size,
        first_rank=rank,
        user_cwd=workspace.cwd,
        user_pythonpath=site.pythonpath,
        tolerates_lost_peers=True,
    )


def _rank(site: Site) -> int:
    """The rank by which this process is known to us; hosts outside the group are numbered after the group's ranks."""
    roster = site.roster
    if roster.seat.grouped:
        return roster.first_rank
    outside = [seat.name for seat in roster.seats if not seat.grouped]
    return roster.world_size + outside.index(roster.me)


def _meeting_point(site: Site) -> tuple[EnvSetting, ...]:
    if site.hosts == 1 or not site.roster.seat.grouped:
        return ()
    return (
        EnvSetting("MASTER_ADDR", site.master_address, "the leader, for programs that start their own ranks"),
        EnvSetting("MASTER_PORT", str(site.roster.master_port), "free on the leader"),
        EnvSetting("NODE_RANK", str(site.roster.node_rank), "this host's place in the group"),
        EnvSetting("NNODES", str(site.hosts), "hosts in the group"),
        EnvSetting("NPROC_PER_NODE", str(site.room), "ranks this host has room for"),
    )
