"""``ranks``: this host's supervisor starts every rank itself, with the variables ``env://`` reads."""

from __future__ import annotations

from musterpoint.base.errors import LauncherError
from musterpoint.core.fabric.setting import EnvSetting
from musterpoint.core.job.model import StartedRank
from musterpoint.core.job.platform import RankPlace
from musterpoint.core.launch.horovod import Gloo, plan_gloo, stall_warnings
from musterpoint.core.launch.identity import IDENTITY, identity
from musterpoint.core.launch.inputs import LaunchInputs
from musterpoint.core.launch.launch_plan import LaunchPlan, ProcessPlan, rank_process, stub_arguments
from musterpoint.core.launch.launcher import Asked, Launcher
from musterpoint.core.launch.launchers import LAUNCHERS
from musterpoint.core.launch.rendezvous import rendezvous
from musterpoint.core.launch.xgboost import Tracker, plan_tracker

RUN_ID = "TORCHELASTIC_RUN_ID"
_OTHERS = "the host's other entry points"


def plan_ranks(inputs: LaunchInputs) -> LaunchPlan:
    """This host's plan: one process per slot, or those that the platform has started."""
    started = inputs.started
    if started is not None:
        return _plan_started(inputs, started)
    gloo, tracker = plan_gloo(inputs), plan_tracker(inputs)
    ranks = (_process(inputs, gloo, tracker, local_rank) for local_rank in range(inputs.roster.seat.slots))
    run_id = EnvSetting(
        RUN_ID,
        inputs.job.name or "muster",
        "as under torchrun: Lightning then refuses devices or num_nodes that don't fit",
    )
    later = stall_warnings(inputs) if "horovod" in inputs.modules else ()
    common = inputs.program_environment(*gloo.environment, *tracker.environment, run_id, *later)
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


def _of_platform(inputs: LaunchInputs, local_rank: int) -> tuple[EnvSetting, ...]:
    """The variables by which the platform itself would number this rank."""
    numbers, roster = inputs.platform.numbers, inputs.roster
    if numbers is None:
        return ()
    slots = tuple(seat.slots for seat in roster.group)
    place = RankPlace(roster.first_rank + local_rank, local_rank, roster.node_rank, slots)
    return tuple(EnvSetting(*variable) for variable in numbers.of_rank(inputs.environ, place))


def _kept(setting: EnvSetting, inputs: LaunchInputs) -> str:
    """The value of a variable that is set; a plan for another host than this one knows that one's place only."""
    return setting.value if setting.name == "NODE_RANK" else inputs.environ[setting.name]


def _plan_started(inputs: LaunchInputs, started: StartedRank) -> LaunchPlan:
    """This host's plan: the rank of this process, and what the host's other entry points run.

    One entry point of each host leads. Its own rank is its child; the others start theirs through the rank stub, which
    reports to it. The variables are those that the platform gave each process; what ``env://`` needs beside them is
    added.

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
        others = (ProcessPlan("launcher", _OTHERS, words),)
    process = rank_process(workspace, started.rank, own, started.local_rank)
    plan = inputs.plan((process,), environment)
    return plan._replace(first_rank=started.rank - started.local_rank, of_others=others, under_mpi=started.mpi)


_NO_MPIRUN = Asked(
    "the job asks for smdistributed {} parallelism; there is no mpirun on PATH, and ranks of TensorFlow need none",
    needs="tensorflow",
    instead=True,
)

LAUNCHER = Launcher(
    name="ranks",
    summary="a rank per slot, each started by this host's supervisor",
    starts="us",
    plan=plan_ranks,
    asked_by={
        "smdistributed_modelparallel": _NO_MPIRUN._replace(reason=_NO_MPIRUN.reason.format("model")),
        "smdistributed_dataparallel": _NO_MPIRUN._replace(reason=_NO_MPIRUN.reason.format("data")),
    },
    instead_of=dict.fromkeys(LAUNCHERS["ranks"].commands, "--launcher ranks SCRIPT"),
    takes_started=True,
    uses=("horovod", "xgboost"),
    servers=("horovod", "xgboost"),
    reads=("slots", "cpu_binding"),
)
