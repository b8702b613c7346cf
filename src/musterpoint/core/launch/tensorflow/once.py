"""Plans with one process per host: the program with a task that was set already, or with none."""

from __future__ import annotations

from musterpoint.core.fabric.setting import EnvSetting
from musterpoint.core.launch.inputs import LaunchInputs
from musterpoint.core.launch.plan import LaunchPlan, ProcessPlan, rank_process, service_process
from musterpoint.core.launch.tensorflow import config
from musterpoint.core.launch.tensorflow.config import ExistingTask


def plan_existing(inputs: LaunchInputs, task: ExistingTask) -> LaunchPlan:
    """A plan that keeps the TF_CONFIG that was already set; the program is a service where its task is a server."""
    roster = inputs.roster
    note = f"TF_CONFIG was set already and is kept: {roster.me} is {task.task}"
    text = config.repaired(inputs.environ)
    own = (EnvSetting(config.NAME, text, "as it was set, without its empty roles, which TensorFlow refuses"),)
    settings = own if text else ()
    if not task.serves:
        return plan_once(inputs, rank_process(inputs.workspace, roster.first_rank, settings), (note,))
    return plan_once(inputs, service_process(inputs.workspace, task.task, settings), (note,))._replace(local_ranks=0)


def plan_once(inputs: LaunchInputs, process: ProcessPlan, notes: tuple[str, ...]) -> LaunchPlan:
    """A plan with ``process`` as this host's one rank."""
    return inputs.plan((process,), inputs.program_environment(), notes=notes)._replace(local_ranks=1)
