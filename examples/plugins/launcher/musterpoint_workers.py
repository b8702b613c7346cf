"""A launcher of another package: a rank per slot, for programs that know themselves by WORKER_ID and WORKER_COUNT."""

from musterpoint.core.fabric.setting import EnvSetting
from musterpoint.core.launch.identity import identity
from musterpoint.core.launch.inputs import LaunchInputs
from musterpoint.core.launch.launch_plan import LaunchPlan, ProcessPlan, rank_process
from musterpoint.core.launch.launcher import Hidden, Launcher


def plan(inputs: LaunchInputs) -> LaunchPlan:
    """This host's part: one process per slot. It does no input or output, so that `muster plan` can show it."""
    ranks = tuple(_rank(inputs, slot) for slot in range(inputs.roster.seat.slots))
    return inputs.plan(ranks, inputs.program_environment())


def _rank(inputs: LaunchInputs, slot: int) -> ProcessPlan:
    number = inputs.roster.first_rank + slot
    own = (
        EnvSetting("WORKER_ID", str(number), "hosts in order, then slots"),
        EnvSetting("WORKER_COUNT", str(inputs.roster.world_size), "slots of all hosts"),
        *identity(inputs, slot),
    )
    return rank_process(inputs.workspace, number, own, slot)


LAUNCHER = Launcher(
    name="workers",
    summary="a rank per slot, numbered by WORKER_ID",
    starts="us",
    plan=plan,
    reads=("slots", "cpu_binding"),
    hides=(Hidden(("WORKER_*",), "it numbers the workers of another job"),),
)
