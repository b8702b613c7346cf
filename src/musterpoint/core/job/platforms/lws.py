"""Reads the job from the variables that a LeaderWorkerSet gives the pods of a group.

Source: kubernetes-sigs/lws, ``pkg/utils/pod/pod_utils.go`` and ``api/leaderworkerset/v1/leaderworkerset_types.go``.
"""

from __future__ import annotations

import re
from typing import Mapping

from musterpoint.base.settings import Settings
from musterpoint.core.job.fields import count
from musterpoint.core.job.model import Job, Sources
from musterpoint.core.job.opt_ml import BASE
from musterpoint.core.job.platform import DocsRow, Platform, Sample
from musterpoint.core.job.pods import pod_name, pod_paths
from musterpoint.core.job.rosters import counted_job, needed, place_of, read_from

NAME, TITLE = "lws", "LeaderWorkerSet"
LEADER, SIZE, INDEX = "LWS_LEADER_ADDRESS", "LWS_GROUP_SIZE", "LWS_WORKER_INDEX"


def read_job(environ: Mapping[str, str], _settings: Settings, _base: str = "") -> Job:
    """The job of this pod's group; pods of other groups have jobs of their own.

    Raises:
        UsageError: a variable is malformed or missing.
    """
    number = count(needed(environ, SIZE, TITLE), SIZE)
    leader = needed(environ, LEADER, TITLE) if number > 1 else environ.get(LEADER, "")
    place = place_of(environ, INDEX, number, TITLE) if environ.get(INDEX) else _by_name(environ, leader)
    job = counted_job(NAME, environ, number, place, leader, Sources(SIZE, INDEX, LEADER))
    unnamed = job.unnamed and job.unnamed._replace(name=pod_name(environ))
    return job._replace(
        name=leader.partition(".")[0],
        paths=pod_paths(environ),
        unnamed=unnamed,
        notes=(read_from(TITLE, environ, (SIZE, INDEX, LEADER)),),
    )


def _by_name(environ: Mapping[str, str], leader: str) -> int | None:
    """The place of a pod called ``LEADER-I``, as the controller calls workers; None where it is called otherwise."""
    first = leader.partition(".")[0]
    if first and pod_name(environ) == first:
        return 0
    found = re.fullmatch(re.escape(first) + "-([0-9]{1,5})", pod_name(environ)) if first else None
    return int(found[1]) if found else None


PLATFORM = Platform(
    name=NAME,
    title=TITLE,
    read=read_job,
    variables=("LWS_", "KUBERNETES_SERVICE", "HOSTNAME"),
    found=lambda environ, _base: any(environ.get(name) for name in (SIZE, INDEX)),
    folder=BASE,
    sample=Sample(
        "train-0-{rank}.train",
        {
            "KUBERNETES_SERVICE_HOST": "10.96.0.1",
            "HOSTNAME": "{pod}",
            LEADER: "{leader}",
            SIZE: "{hosts}",
            INDEX: "{rank}",
        },
        leader_name="train-0.train",
    ),
    row=DocsRow(
        "#leaderworkerset",
        "`LWS_LEADER_ADDRESS`, `LWS_GROUP_SIZE`, `LWS_WORKER_INDEX`",
        "`muster launch …` as the command of leader and workers",
        "each group is a job of its own",
        "`/opt/ml` too, where it can be made, else as on machines of your own",
        "as on Kubernetes",
    ),
)
