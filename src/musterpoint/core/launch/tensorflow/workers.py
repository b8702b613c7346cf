"""``tensorflow``: the program once per host, with the TF_CONFIG that ``MultiWorkerMirroredStrategy`` reads.

Every host of the group is a worker, in rank order; worker 0 is the chief. One host alone gets no TF_CONFIG, as on the
platforms, unless ``--tf-port`` asks for it. The program decides how workers exchange gradients (RING, NCCL).
"""

from __future__ import annotations

from musterpoint.core.fabric.setting import EnvSetting
from musterpoint.core.launch.inputs import LaunchInputs, check_channel
from musterpoint.core.launch.plan import LaunchPlan, ProcessPlan, rank_process, service_process
from musterpoint.core.launch.tensorflow import config
from musterpoint.core.launch.tensorflow.config import ExistingTask


def plan_tensorflow(inputs: LaunchInputs) -> LaunchPlan:
    """This host's worker."""
    roster = inputs.roster
    task = config.existing_task(inputs.environ)
    if task is not None:
        return plan_existing(inputs, task)
    if inputs.hosts == 1 and inputs.settings.tf_port is None:
        note = "one host: no TF_CONFIG is set; --tf-port asks for one"
        return plan_once(inputs, rank_process(inputs.workspace, roster.first_rank), (note,))._replace(world_size=1)
    workers = [seat.name for seat in roster.group]
    text = config.encode(
        {"worker": [config.address(inputs, host, 0) for host in workers]},
        "worker",
        roster.node_rank,
        inputs.platform.tensorflow_keys,
    )
    chief = "the chief" if roster.node_rank == 0 else f"{workers[0]} is the chief"
    setting = EnvSetting(config.NAME, text, f"this host is worker {roster.node_rank} of {len(workers)}; {chief}")
    notes = config.port_notes(inputs, [(host, 0) for host in workers]) if roster.node_rank == 0 else ()
    return plan_once(inputs, rank_process(inputs.workspace, roster.first_rank, (setting,)), notes)


def plan_existing(inputs: LaunchInputs, task: ExistingTask) -> LaunchPlan:
    """A plan that keeps the TF_CONFIG that was already set; the program is a service where its task is a server."""
    roster = inputs.roster
    note = f"TF_CONFIG was set already and is kept: {roster.me} is {task.task}"
    text = config.repaired(inputs.environ)
    own = (EnvSetting(config.NAME, text, "as it was set, without its empty roles, which TensorFlow refuses"),)
    settings = own if text else ()
    if not task.serves:
        return plan_once(inputs, rank_process(inputs.workspace, roster.first_rank, settings), (note,))
    check_channel(inputs)
    return plan_once(inputs, service_process(inputs.workspace, task.task, settings), (note,))._replace(local_ranks=0)


def plan_once(inputs: LaunchInputs, process: ProcessPlan, notes: tuple[str, ...]) -> LaunchPlan:
    """A plan with ``process`` as this host's one rank."""
    return inputs.plan((process,), inputs.program_environment(), notes=notes)._replace(local_ranks=1)
