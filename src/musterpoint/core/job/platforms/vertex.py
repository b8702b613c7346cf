"""Reads the job from CLUSTER_SPEC, which Vertex AI gives every replica of a custom job.

Its pools are the first replica, workers, and, for some jobs, servers (parameter servers, reduction servers) and
evaluators. Source: Vertex AI's documentation, "Distributed training", format of ``CLUSTER_SPEC``.
"""

from __future__ import annotations

import json
from typing import Any, Mapping

from musterpoint.base.errors import UsageError
from musterpoint.base.settings import Settings
from musterpoint.core.job.fields import count, host, mapping, parse, shown, text, wrong
from musterpoint.core.job.model import EntryPoint, Job, Note
from musterpoint.core.job.opt_ml import BASE
from musterpoint.core.job.other_platforms import refuse_started_ranks
from musterpoint.core.job.platform import DocsRow, Platform

NAME = "vertex"
SPEC = "CLUSTER_SPEC"
_TRAINING = ("chief", "workerpool0", "workerpool1")
"""The pools whose replicas train, in rank order; ``chief`` is a job's only replica."""


def read_job(environ: Mapping[str, str], _settings: Settings, _base: str = "") -> Job:
    """The job of this replica: the first, and the workers.

    Raises:
        UsageError: CLUSTER_SPEC is malformed, or this replica is a server's or an evaluator's.
    """
    refuse_started_ranks(environ)
    if not environ.get(SPEC):
        raise UsageError(
            f"{SPEC} isn't set, expected Vertex AI's description of the job: this is no custom job's replica"
        )
    spec = mapping(parse(environ.get(SPEC, ""), f"the variable {SPEC}"), f"the variable {SPEC}")
    pools = mapping(spec.get("cluster"), f"{SPEC}: cluster")
    task = mapping(spec.get("task"), f"{SPEC}: task")
    names = {pool: _names(pools[pool], f"{SPEC}: cluster.{pool}") for pool in pools}
    own = text(task.get("type"), f"{SPEC}: task.type")
    if own not in names:
        raise wrong(f"{SPEC}: task.type", own, f"one of the cluster's pools: {', '.join(names)}")
    if own not in _TRAINING:
        raise UsageError(
            f"{SPEC}: task.type is {own}, a pool of servers or evaluators, which take no part in the training that "
            "musterpoint starts: let that pool run its own program (a parameter server, a reduction server), or have "
            "all replicas in workerpool0 and workerpool1"
        )
    index = count(task.get("index", 0), f"{SPEC}: task.index", 0)
    if index >= len(names[own]):
        raise wrong(f"{SPEC}: task.index", index, f"a place among the {len(names[own])} replicas of {own}")
    hosts = tuple(name for pool in _TRAINING for name in names.get(pool, ()))
    if len(set(hosts)) < len(hosts):
        raise wrong(f"{SPEC}: cluster", shown(pools), "every replica once")
    others = [pool for pool in names if pool not in _TRAINING and names[pool]]
    notes = [Note("plan", f"{SPEC}: this is replica {index} of {own}")]
    if others:
        notes.append(Note("info", f"{SPEC}: {' and '.join(others)} take no part: they serve"))
    return Job(
        platform=NAME,
        name=environ.get("CLOUD_ML_JOB_ID", ""),
        hosts=hosts,
        current_host=names[own][index],
        group_hosts=hosts,
        entry_point=EntryPoint(""),
        notes=tuple(notes),
    )


def _names(replicas: Any, where: str) -> tuple[str, ...]:
    """The names of ``["HOST:PORT", ...]``; the ports are TensorFlow's."""
    if not isinstance(replicas, list):
        raise wrong(where, replicas, 'a list of replicas such as ["cmle-training-workerpool0-ab-0:2222"]')
    return tuple(
        host(replica.rpartition(":")[0] or replica if isinstance(replica, str) else replica, f"{where}[{at}]")
        for at, replica in enumerate(replicas)
    )


def _found(environ: Mapping[str, str], _base: str) -> bool:
    """TonY's variable of the same name has lists of tasks by role, and nothing else."""
    text = environ.get(SPEC, "")
    try:
        spec = json.loads(text)
    except (ValueError, RecursionError):
        return bool(text)
    of_tony = (
        isinstance(spec, dict) and "cluster" not in spec and any(isinstance(tasks, list) for tasks in spec.values())
    )
    return not of_tony


PLATFORM = Platform(
    name=NAME,
    title="Vertex AI",
    read=read_job,
    variables=(SPEC, "CLOUD_ML_", "AIP_"),
    found=_found,
    folder=BASE,
    row=DocsRow(
        "#vertex-ai",
        "`CLUSTER_SPEC`",
        "`muster launch …` in worker pools 0 and 1",
        "",
        "`/opt/ml` too, where it can be made, else as on machines of your own",
        "`/opt/ml/output/failure`",
    ),
)
