"""Reads the job from TF_CONFIG, which names every task of a TensorFlow cluster: TFJob's pods and others' have it.

Chief (``master`` in TensorFlow 1), workers and parameter servers are hosts; an evaluator is in no cluster. Sources:
TensorFlow's ``TFConfigClusterResolver``; kubeflow/training-operator, ``pkg/controller.v1/tensorflow/tensorflow.go``.
"""

from __future__ import annotations

import json
from typing import Any, Mapping

from musterpoint.base.errors import UsageError
from musterpoint.base.settings import Settings
from musterpoint.core.job.fields import count, mapping, parse, text, wrong
from musterpoint.core.job.model import Distribution, DistributionKind, Job, Note
from musterpoint.core.job.platform import DocsRow, Numbers, Platform, RankPlace, StartedBy
from musterpoint.core.job.pods import pod_paths
from musterpoint.core.job.rosters import listed_job, needed

NAME, TITLE = "tfconfig", "TF_CONFIG"
CONFIG = "TF_CONFIG"
_ROLES = ("chief", "master", "worker", "ps")
"""The roles whose tasks are hosts, in rank order."""


def read_job(environ: Mapping[str, str], _settings: Settings, _base: str = "") -> Job:
    """The job of this task.

    Raises:
        UsageError: TF_CONFIG is malformed, or this task is a server's or an evaluator's.
    """
    config = mapping(parse(needed(environ, CONFIG, "TensorFlow"), f"the variable {CONFIG}"), f"the variable {CONFIG}")
    cluster = mapping(config.get("cluster"), f"{CONFIG}: cluster")
    task = mapping(config.get("task"), f"{CONFIG}: task")
    role = text(task.get("type"), f"{CONFIG}: task.type")
    tasks = {each: _hosts(cluster[each], f"{CONFIG}: cluster.{each}") for each in cluster}
    hosts = tuple(host for each in _ROLES for host in tasks.get(each, ()))
    if role not in _ROLES:
        raise UsageError(
            f"{CONFIG}: task.type is {role or 'missing'}, expected one of {', '.join(_ROLES)}: let an evaluator run "
            "its own program without musterpoint, or set MUSTER_PLATFORM=plain there"
        )
    index = count(task.get("index", 0), f"{CONFIG}: task.index", 0)
    if index >= len(tasks.get(role, ())):
        raise wrong(f"{CONFIG}: task.index", index, f"a place among the {len(tasks.get(role, ()))} tasks of {role}")
    job = listed_job(NAME, environ, hosts, hosts.index(tasks[role][index]), f"{CONFIG}: cluster")
    paths = pod_paths(environ) if environ.get("KUBERNETES_SERVICE_HOST") else job.paths
    kind: DistributionKind = "parameter_server" if tasks.get("ps") else "multi_worker_mirrored_strategy"
    note = Note("plan", f"{CONFIG}: this is task {index} of {role}")
    return job._replace(paths=paths, distribution=Distribution(kind), notes=(note,))


def _hosts(addresses: Any, where: str) -> tuple[str, ...]:
    """The hosts of ``["HOST:PORT", ...]``: musterpoint chooses ports itself."""
    if not isinstance(addresses, list) or not all(isinstance(address, str) for address in addresses):
        raise wrong(where, addresses, 'a list of tasks such as ["worker-0:2222"]')
    return tuple((address.rpartition(":")[0] or address).strip("[]") for address in addresses)


def _found(environ: Mapping[str, str], _base: str) -> bool:
    """A cluster of several tasks; what can't be read is refused by the reader."""
    config = environ.get(CONFIG, "").strip()
    if not config:
        return False
    try:
        cluster = mapping(parse(config, CONFIG), CONFIG).get("cluster", {})
        return not isinstance(cluster, dict) or sum(len(tasks) for tasks in cluster.values()) > 1
    except (UsageError, TypeError):
        return True


def _stale(environ: Mapping[str, str], started_by: StartedBy) -> tuple[str, ...]:
    return (CONFIG,) if started_by == "launcher" and CONFIG in environ else ()


def _of_rank(environ: Mapping[str, str], place: RankPlace) -> tuple[tuple[str, str, str], ...]:
    """With several ranks on a host no task of the cluster is a rank's own."""
    if CONFIG not in environ or set(place.slots) == {1}:
        return ()
    return ((CONFIG, "{}", "it numbers one task per host, and there are several ranks on some"),)


def _environ_at(environ: Mapping[str, str], place: int) -> Mapping[str, str]:
    config = mapping(parse(environ.get(CONFIG, ""), CONFIG), CONFIG)
    cluster = config["cluster"]
    tasks = [(role, index) for role in _ROLES for index in range(len(cluster.get(role, ())))]
    role, index = tasks[place]
    return {**environ, CONFIG: json.dumps({**config, "task": {**config["task"], "type": role, "index": index}})}


PLATFORM = Platform(
    name=NAME,
    title=TITLE,
    read=read_job,
    variables=(CONFIG,),
    found=_found,
    environ_at=_environ_at,
    numbers=Numbers(_stale, _of_rank),
    row=DocsRow(
        "#tf_config",
        "`TF_CONFIG`: chief, workers, parameter servers",
        "`muster launch …` as the command of every task",
        "`TF_CONFIG` is kept; an evaluator runs a program of its own",
        reports="`muster-jobs/JOB/hosts/HOST/failure`",
    ),
)
