"""``tensorflow``: the program once per host, with the TF_CONFIG that ``MultiWorkerMirroredStrategy`` reads.

Every host of the group is a worker, in rank order; worker 0 is the chief. One host alone gets no TF_CONFIG, as on the
platforms, unless ``--tf-port`` asks for it. The program decides how workers exchange gradients (RING, NCCL).
"""

from __future__ import annotations

from typing import Mapping

from musterpoint.base.settings import Settings
from musterpoint.core.fabric.setting import EnvSetting
from musterpoint.core.job.model import Job
from musterpoint.core.launch.inputs import LaunchInputs
from musterpoint.core.launch.launch_plan import LaunchPlan, rank_process
from musterpoint.core.launch.launcher import Asked, Launcher
from musterpoint.core.launch.rendezvous import of_tensorflow
from musterpoint.core.launch.tensorflow import tf_config
from musterpoint.core.launch.tensorflow.saved_model import missing_model
from musterpoint.core.launch.tensorflow.tasks import first_port, fixed_ports
from musterpoint.core.launch.tensorflow.tf_config import plan_existing, plan_once


def plan_tensorflow(inputs: LaunchInputs) -> LaunchPlan:
    """This host's worker."""
    roster = inputs.roster
    task = tf_config.existing_task(inputs.environ)
    if task is not None:
        return plan_existing(inputs, task)
    if inputs.hosts == 1 and inputs.settings.tf_port is None:
        note = "one host: no TF_CONFIG is set; --tf-port asks for one"
        return plan_once(inputs, rank_process(inputs.workspace, roster.first_rank), (note,))._replace(world_size=1)
    workers = [seat.name for seat in roster.group]
    addresses = [tf_config.address(inputs, host, 0) for host in workers]
    text = tf_config.encode({"worker": addresses}, "worker", roster.node_rank, inputs.platform.tensorflow_keys)
    chief = "the chief" if roster.node_rank == 0 else f"{workers[0]} is the chief"
    setting = EnvSetting(tf_config.NAME, text, f"this host is worker {roster.node_rank} of {len(workers)}; {chief}")
    notes = tf_config.port_notes(inputs, [(host, 0) for host in workers]) if roster.node_rank == 0 else ()
    made = plan_once(inputs, rank_process(inputs.workspace, roster.first_rank, (setting,)), notes)
    return made._replace(meeting=of_tensorflow(inputs, int(addresses[0].rpartition(":")[2])))


def _ports(job: Job, settings: Settings) -> tuple[int, ...]:
    """One server; none where the program is alone."""
    alone = len(job.group_hosts) == 1 and settings.tf_port is None
    return () if alone else (first_port(LAUNCHER, job, settings),)


def _slots(_host: str, _job: Job, _settings: Settings, environ: Mapping[str, str]) -> int:
    task = tf_config.existing_task(environ)
    return 0 if task is not None and task.serves else 1


LAUNCHER = Launcher(
    name="tensorflow",
    summary="the program once per host, as a worker of MultiWorkerMirroredStrategy, with TF_CONFIG",
    starts="host",
    talks_grpc=True,
    plan=plan_tensorflow,
    asked_by={"multi_worker_mirrored_strategy": Asked("the job asks for multi_worker_mirrored_strategy")},
    slots=_slots,
    ports=_ports,
    fixed_ports=fixed_ports,
    reads=("tf_port", "tf_hosts"),
    afterwards=missing_model,
)
