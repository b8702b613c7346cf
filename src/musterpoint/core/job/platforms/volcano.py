"""Reads the job from the variables of Volcano's plugins ``svc`` and ``env``, which list the pods of every task.

``VC_WORKER_HOSTS`` lists the pods of the task ``worker``: all tasks' pods are the job's hosts. Source: Volcano's
``docs/user-guide/how_to_use_svc_plugin.md`` and ``how_to_use_env_plugin.md``. Huawei's ModelArts sets them, too.
"""

from __future__ import annotations

import re
from typing import Mapping

from musterpoint.base.errors import UsageError
from musterpoint.base.settings import Settings
from musterpoint.core.job.fields import count
from musterpoint.core.job.model import Job
from musterpoint.core.job.opt_ml import BASE
from musterpoint.core.job.other_platforms import shown_variables
from musterpoint.core.job.platform import DocsRow, Platform, Sample
from musterpoint.core.job.pods import pod_name, pod_paths
from musterpoint.core.job.rosters import listed_job, needed, once_each, read_from

NAME, TITLE = "volcano", "Volcano"
INDEX = "VC_TASK_INDEX"
LISTS = re.compile("VC_(.+)_HOSTS")
_FIRST = ("MASTER", "CHIEF", "LAUNCHER", "HEAD", "LEADER")
"""Tasks whose pods come first; the others follow by their names."""


def read_job(environ: Mapping[str, str], _settings: Settings, _base: str = "") -> Job:
    """The job of this pod.

    Raises:
        UsageError: a variable is malformed or missing, or nothing says which pod this is.
    """
    tasks = {found[1]: name for name in environ if (found := LISTS.fullmatch(name)) and environ[name].strip()}
    if not tasks:
        raise UsageError(
            "none of the variables VC_*_HOSTS is set, expected those of Volcano's plugin svc: add `svc: []` and "
            "`env: []` to the job's plugins"
        )
    order = sorted(tasks, key=lambda task: (_FIRST.index(task) if task in _FIRST else len(_FIRST), task))
    variables = [tasks[task] for task in order]
    pods = {name: once_each(filter(None, map(str.strip, environ[name].split(",")))) for name in variables}
    hosts = tuple(pod for name in variables for pod in pods[name])
    me = pod_name(environ)
    named = [at for at, pod in enumerate(hosts) if pod.partition(".")[0] == me]
    if not named and len(variables) > 1:
        said = shown_variables((name, environ[name]) for name in variables)
        raise UsageError(
            f"this pod is {me} (hostNetwork takes a pod's own name away), and {said}: with several tasks expected its "
            "name there: set SM_HOSTS (a JSON list) and SM_CURRENT_HOST, or have all pods in one task"
        )
    place = (
        0 if len(hosts) == 1 else named[0] if named else count(needed(environ, INDEX, TITLE), INDEX, 0, len(hosts) - 1)
    )
    job = listed_job(NAME, environ, hosts, place, " and ".join(variables))
    used = () if named else (INDEX,)
    return job._replace(paths=pod_paths(environ), notes=(read_from(TITLE, environ, (*variables, *used)),))


PLATFORM = Platform(
    name=NAME,
    title=TITLE,
    read=read_job,
    variables=("VC_", "VK_TASK_INDEX", "KUBERNETES_SERVICE", "HOSTNAME"),
    found=lambda environ, _base: any(LISTS.fullmatch(name) and environ[name].strip() for name in environ),
    folder=BASE,
    sample=Sample(
        "train-worker-{rank}.train",
        {
            "KUBERNETES_SERVICE_HOST": "10.96.0.1",
            "HOSTNAME": "{pod}",
            "VC_WORKER_HOSTS": "{names:,}",
            "VC_WORKER_NUM": "{hosts}",
            INDEX: "{rank}",
            "VK_TASK_INDEX": "{rank}",
        },
    ),
    row=DocsRow(
        "#volcano",
        "`VC_*_HOSTS` and `VC_TASK_INDEX` of the plugins `svc` and `env`",
        "`muster launch …` as the command of every task",
        "the pods of all tasks are hosts; `master` comes first",
        "`/opt/ml` too, where it can be made, else as on machines of your own",
        "as on Kubernetes",
    ),
)
