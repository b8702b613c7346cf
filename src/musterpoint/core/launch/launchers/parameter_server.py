"""``parameter-server``: the program, and the TensorFlow servers that keep its variables.

:mod:`musterpoint.core.launch.tensorflow.tasks` says which task runs where. Servers are processes of ours
(:mod:`musterpoint.embedded.programs.tensorflow_server`) and services of the plan: they end when every rank has.
"""

from __future__ import annotations

from typing import Mapping

from musterpoint.base.settings import PARAMETER_SERVER_PORT, Settings
from musterpoint.core.fabric.setting import EnvSetting
from musterpoint.core.job.model import Job
from musterpoint.core.launch.inputs import LaunchInputs
from musterpoint.core.launch.launch_plan import (
    Argument,
    LaunchPlan,
    ProcessPlan,
    program_of_ours,
    rank_process,
    service_process,
)
from musterpoint.core.launch.launcher import Asked, Launcher
from musterpoint.core.launch.tensorflow import tf_config
from musterpoint.core.launch.tensorflow.saved_model import missing_model
from musterpoint.core.launch.tensorflow.tasks import (
    BESIDE,
    RANK,
    Task,
    first_port,
    fixed_ports,
    ranks_on,
    roles_of,
    tasks_of,
)
from musterpoint.core.launch.tensorflow.tf_config import plan_existing, plan_once

GPUS = "CUDA_VISIBLE_DEVICES"
GO_BEFORE = {"chief": ("worker", "evaluator"), "evaluator": ("worker",)}
"""Tasks that get the GPUs of a shared host before others: a TensorFlow process takes all GPU memory."""
QUIET = (EnvSetting("TF_CPP_MIN_LOG_LEVEL", "1", "its own INFO lines would stand among the program's"),)
SHOWN = 32
"""How many tasks the log lists at most."""


def plan_parameter_server(inputs: LaunchInputs) -> LaunchPlan:
    """This host's tasks.

    Raises:
        UsageError: there are more hosts than roles.
    """
    task = tf_config.existing_task(inputs.environ)
    if task is not None:
        return plan_existing(inputs, task)
    roster = inputs.roster
    if inputs.hosts == 1 and inputs.settings.tf_port is None and not roles_of(inputs.job, inputs.settings):
        note = "one host: no parameter server and no TF_CONFIG; --tf-port or --tf-roles asks for them"
        return plan_once(inputs, rank_process(inputs.workspace, 0), (note,))._replace(world_size=1, first_rank=0)
    tasks = tasks_of(inputs.job, inputs.settings)
    ranks = [task for task in tasks if task.runs == RANK]
    own = [task for task in tasks if task.host == roster.me]
    before = len([task for task in ranks if _position(inputs, task.host) < roster.node_rank])
    plan = inputs.plan(
        tuple(_process(inputs, task, tasks, ranks) for task in own),
        inputs.program_environment(),
        notes=_notes(inputs, tasks) if roster.node_rank == 0 else (),
    )
    here = len([task for task in own if task.runs == RANK])
    return plan._replace(local_ranks=here, world_size=len(ranks), first_rank=before)


def _position(inputs: LaunchInputs, host: str) -> int:
    return [seat.name for seat in inputs.roster.group].index(host)


def _process(inputs: LaunchInputs, task: Task, tasks: tuple[Task, ...], ranks: list[Task]) -> ProcessPlan:
    settings = (_tf_config(inputs, task, tasks), *_devices(inputs, task, tasks))
    if task.runs == RANK:
        return rank_process(inputs.workspace, ranks.index(task), settings)
    if task.runs == BESIDE:
        return service_process(inputs.workspace, task.name, settings)
    return ProcessPlan(
        "service",
        task.name,
        (
            Argument(inputs.workspace.interpreter, "the program's Python, which has TensorFlow"),
            program_of_ours("tensorflow_server", "serves until every rank has ended"),
        ),
        (*settings, *(QUIET if QUIET[0].name not in inputs.environ else ())),
        inputs.workspace.cwd,
    )


def _tf_config(inputs: LaunchInputs, task: Task, tasks: tuple[Task, ...]) -> EnvSetting:
    """The task's TF_CONFIG. An evaluator isn't part of the cluster: no other task waits for it."""
    cluster: dict[str, list[str]] = {}
    for one in tasks:
        if one.runs != BESIDE:
            address = tf_config.address(inputs, one.host, one.place)
            cluster.setdefault(one.role, []).append(address)
    text = tf_config.encode(cluster, task.role, task.number, inputs.platform.tensorflow_keys)
    return EnvSetting(tf_config.NAME, text, f"this process is {task.name}")


def _devices(inputs: LaunchInputs, task: Task, tasks: tuple[Task, ...]) -> tuple[EnvSetting, ...]:
    if task.role == "ps":
        return (EnvSetting(GPUS, "", "a parameter server needs no GPU, and would take its memory"),)
    here = {one.role for one in tasks if one.host == task.host}
    owner = next((role for role in GO_BEFORE.get(task.role, ()) if role in here), "")
    if owner and GPUS not in inputs.environ:
        return (EnvSetting(GPUS, "", f"the {owner} on this host has its GPUs, and their memory"),)
    return ()


def _notes(inputs: LaunchInputs, tasks: tuple[Task, ...]) -> tuple[str, ...]:
    listed = [f"{task.name} on {task.host}" for task in tasks[:SHOWN]]
    more = len(tasks) - len(listed)
    listed += [f"and {more} more"] if more else []
    servers = [(task.host, task.place) for task in tasks if task.runs != BESIDE]
    return ("tasks: " + ", ".join(listed), *tf_config.port_notes(inputs, servers))


def _ports(job: Job, settings: Settings) -> tuple[int, ...]:
    """One for each TensorFlow server of this host; none where one host has no cluster."""
    if len(job.group_hosts) == 1 and settings.tf_port is None and not roles_of(job, settings):
        return ()
    own = [task for task in tasks_of(job, settings) if task.host == job.current_host and task.runs != BESIDE]
    first = first_port(LAUNCHER, job, settings)
    return tuple(first and first + place for place in range(len(own)))


def _slots(host: str, job: Job, settings: Settings, environ: Mapping[str, str]) -> int:
    task = tf_config.existing_task(environ)
    if task is not None:
        return 0 if task.serves else 1
    return ranks_on(host, job, settings)


LAUNCHER = Launcher(
    name="parameter-server",
    summary="the program, and the TensorFlow servers that keep its variables",
    starts="host",
    talks_grpc=True,
    plan=plan_parameter_server,
    asked_by={"parameter_server": Asked("the job asks for parameter_server")},
    needs_place=True,
    slots=_slots,
    ports=_ports,
    fixed_ports=fixed_ports,
    first_port=PARAMETER_SERVER_PORT,
    reads=("tf_port", "tf_hosts", "tf_roles"),
    afterwards=missing_model,
)
