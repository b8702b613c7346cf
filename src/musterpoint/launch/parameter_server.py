"""``parameter-server``: the program, and the TensorFlow servers it keeps its variables in.

:mod:`musterpoint.launch.tf_tasks` says who runs where. Servers are processes of ours
(:mod:`musterpoint.supervise.tensorflow_server`) and services of the plan: they end when every rank has.
"""

from __future__ import annotations

from musterpoint.fabric.setting import EnvSetting
from musterpoint.launch import tf_config
from musterpoint.launch.plan import Argument, LaunchPlan, ProcessPlan, program_of_ours
from musterpoint.launch.site import Site
from musterpoint.launch.tensorflow import beside, check_channel, plan_given, plan_of, rank
from musterpoint.launch.tf_tasks import BESIDE, RANK, Task, roles_of, tasks_of

GPUS = "CUDA_VISIBLE_DEVICES"
GO_BEFORE = {"chief": ("worker", "evaluator"), "evaluator": ("worker",)}
"""Who has the GPUs of a host that several tasks share: a TensorFlow process takes all of their memory."""
QUIET = (EnvSetting("TF_CPP_MIN_LOG_LEVEL", "1", "its own INFO lines would stand among the program's"),)
SHOWN = 32
"""At most so many tasks are listed in the log."""


def plan_parameter_server(site: Site) -> LaunchPlan:
    """This host's tasks.

    Raises:
        UsageError: there are more hosts than roles, or hosts without the roll call's channel.
    """
    found = tf_config.given(site.environ)
    if found is not None:
        return plan_given("parameter-server", site, found)
    roster = site.roster
    if site.hosts == 1 and site.settings.tf_port is None and not roles_of(site.job, site.settings):
        note = "one host: no parameter server and no TF_CONFIG; --tf-port or --tf-roles asks for them"
        return plan_of("parameter-server", site, (rank(site, 0),), 1, notes=(note,))
    check_channel(site, "parameter-server")
    tasks = tasks_of(site.job, site.settings)
    ranks = [task for task in tasks if task.runs == RANK]
    own = [task for task in tasks if task.host == roster.me]
    before = len([task for task in ranks if _position(site, task.host) < roster.node_rank])
    return plan_of(
        "parameter-server", site, tuple(_process(site, task, tasks, ranks) for task in own), len(ranks),
        local_ranks=len([task for task in own if task.runs == RANK]), first_rank=before,
        notes=_notes(site, tasks) if roster.node_rank == 0 else (),
    )  # fmt: skip


def _position(site: Site, host: str) -> int:
    return [seat.name for seat in site.roster.group].index(host)


def _process(site: Site, task: Task, tasks: tuple[Task, ...], ranks: list[Task]) -> ProcessPlan:
    settings = (_tf_config(site, task, tasks), *_devices(site, task, tasks))
    if task.runs == RANK:
        return rank(site, ranks.index(task), *settings)
    if task.runs == BESIDE:
        return beside(site, task.name, *settings)
    return ProcessPlan(
        "service",
        task.name,
        (
            Argument(site.workspace.interpreter, "the program's Python, which has TensorFlow"),
            program_of_ours("tensorflow_server", "serves until every rank has ended"),
        ),
        (*settings, *(QUIET if QUIET[0].name not in site.environ else ())),
        site.workspace.cwd,
    )


def _tf_config(site: Site, task: Task, tasks: tuple[Task, ...]) -> EnvSetting:
    """An evaluator isn't part of the cluster: nobody would wait for it."""
    cluster: dict[str, list[str]] = {}
    for one in tasks:
        if one.runs != BESIDE:
            address = tf_config.address(site, "parameter-server", one.host, one.place)
            cluster.setdefault(one.role, []).append(address)
    text = tf_config.encode(cluster, task.role, task.number, site.job.platform)
    return EnvSetting(tf_config.NAME, text, f"this process is {task.name}")


def _devices(site: Site, task: Task, tasks: tuple[Task, ...]) -> tuple[EnvSetting, ...]:
    if task.role == "ps":
        return (EnvSetting(GPUS, "", "a parameter server needs no GPU, and would take its memory"),)
    here = {one.role for one in tasks if one.host == task.host}
    owner = next((role for role in GO_BEFORE.get(task.role, ()) if role in here), "")
    if owner and GPUS not in site.environ:
        return (EnvSetting(GPUS, "", f"the {owner} on this host has its GPUs, and their memory"),)
    return ()


def _notes(site: Site, tasks: tuple[Task, ...]) -> tuple[str, ...]:
    listed = [f"{task.name} on {task.host}" for task in tasks[:SHOWN]]
    more = len(tasks) - len(listed)
    listed += [f"and {more} more"] if more else []
    servers = [(task.host, task.place) for task in tasks if task.runs != BESIDE]
    return ("tasks: " + ", ".join(listed), *tf_config.taken(site, "parameter-server", servers))
