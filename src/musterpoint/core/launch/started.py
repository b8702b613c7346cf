"""``ranks`` where the platform has started a process for every rank itself: each runs its program as it was started.

One entry point of each host leads. Its own rank is its child; the others start theirs through the rank stub, which
reports to it. The variables are those that the platform gave each process; what ``env://`` needs beside them is added.
"""

from __future__ import annotations

from musterpoint.base.errors import LauncherError
from musterpoint.core.fabric.setting import EnvSetting
from musterpoint.core.job.model import StartedRank
from musterpoint.core.launch.inputs import LaunchInputs
from musterpoint.core.launch.plan import LaunchPlan, ProcessPlan, rank_process, stub_arguments

OTHERS = "the host's other entry points"


def _kept(setting: EnvSetting, inputs: LaunchInputs) -> str:
    """The value of a variable that is set; a plan for another host than this one knows that one's place only."""
    return setting.value if setting.name == "NODE_RANK" else inputs.environ[setting.name]


def plan_started(inputs: LaunchInputs, started: StartedRank) -> LaunchPlan:
    """This host's plan: the rank of this process, and what the host's other entry points run.

    Raises:
        LauncherError: the hosts of the roll call have another number of processes than the platform says.
    """
    roster, workspace = inputs.roster, inputs.workspace
    if roster.world_size != started.world_size:
        raise LauncherError(
            f"the platform says that there are {started.world_size} processes in all, and the roll call found "
            f"{roster.world_size}, {started.local_size} of them here: their variables don't fit together"
        )
    common = (
        EnvSetting("WORLD_SIZE", str(started.world_size), "processes that the platform started"),
        EnvSetting("LOCAL_WORLD_SIZE", str(started.local_size), "those of this host"),
        EnvSetting("NODE_RANK", str(roster.node_rank), "this host's place in the group"),
        EnvSetting("MASTER_ADDR", inputs.master_address, "where rank 0 listens"),
        EnvSetting("MASTER_PORT", str(roster.master_port), "free on the leader"),
    )
    names = {setting.name for setting in common}
    set_here = {name: value for name, value in inputs.environ.items() if value or name not in names}
    inputs = inputs._replace(environ=set_here)  # an empty one is as good as none
    environment = inputs.program_environment(*common)
    already = (setting for setting in common if setting.name in inputs.environ)
    own = (
        *(setting._replace(value=_kept(setting, inputs), reason="as the platform set it") for setting in already),
        EnvSetting("RANK", str(started.rank), "this process's, as the platform started it"),
        EnvSetting("LOCAL_RANK", str(started.local_rank), "its place on this host; the program picks its device by it"),
    )
    others: tuple[ProcessPlan, ...] = ()
    if started.local_size > 1:
        words = stub_arguments(workspace.interpreter, workspace.argv)
        others = (ProcessPlan("launcher", OTHERS, words),)
    process = rank_process(workspace, started.rank, own, started.local_rank)
    plan = inputs.plan((process,), environment)
    return plan._replace(first_rank=started.rank - started.local_rank, of_others=others, under_mpi=started.mpi)
