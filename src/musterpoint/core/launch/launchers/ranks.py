"""``ranks``: this host's supervisor starts every rank itself, with the variables ``env://`` reads."""

from __future__ import annotations

from musterpoint.core.fabric.setting import EnvSetting
from musterpoint.core.job.platform import RankPlace
from musterpoint.core.launch.horovod import Gloo, plan_gloo, stall_warnings
from musterpoint.core.launch.identity import IDENTITY, identity
from musterpoint.core.launch.inputs import LaunchInputs
from musterpoint.core.launch.launcher import Asked, Launcher
from musterpoint.core.launch.plan import LaunchPlan, ProcessPlan, rank_process
from musterpoint.core.launch.rendezvous import rendezvous
from musterpoint.core.launch.started import plan_started
from musterpoint.core.launch.xgboost import Tracker, plan_tracker

RUN_ID = "TORCHELASTIC_RUN_ID"


def plan_ranks(inputs: LaunchInputs) -> LaunchPlan:
    """This host's plan: one process per slot, or those that the platform has started."""
    started = inputs.started
    if started is not None:
        return plan_started(inputs, started)
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
    instead_of={"horovodrun": "--launcher ranks SCRIPT"},
    takes_started=True,
    uses=("horovod", "xgboost"),
    servers=("horovod", "xgboost"),
    reads=("slots", "cpu_binding"),
)
