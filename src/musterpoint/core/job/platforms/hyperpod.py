"""Reads the job from the variables of torchrun's that HyperPod's training operator gives the pods of its jobs.

The pods are called ``JOB-REPLICA-0``, ``JOB-REPLICA-1`` and so on, with the replica's name ``pods`` in all samples.
Sources: Amazon SageMaker's developer guide,
https://docs.aws.amazon.com/sagemaker/latest/dg/sagemaker-eks-operator-usage.html;
https://awslabs.github.io/ai-on-sagemaker-hyperpod/docs/add-ons/hp-training-operator/overview. Jobs of HyperPod on Slurm
are Slurm's.
"""

from __future__ import annotations

import re
from typing import Mapping

from musterpoint.base.errors import UsageError
from musterpoint.base.settings import Settings
from musterpoint.core.job.model import Job
from musterpoint.core.job.opt_ml import BASE
from musterpoint.core.job.other_platforms import refuse_started_ranks
from musterpoint.core.job.platform import DocsRow, Platform, Sample
from musterpoint.core.job.pods import pod_name, pod_paths
from musterpoint.core.job.unnamed import from_variables

NAME, TITLE = "hyperpod", "HyperPod"
LEADER = "PET_MASTER_ADDR"
_FIRST = re.compile(r"(?P<job>.+)-pods-0(?:\..*)?")


def read_job(environ: Mapping[str, str], _settings: Settings, _base: str = "") -> Job:
    """The job of this pod.

    Raises:
        UsageError: a variable is malformed or missing.
    """
    refuse_started_ranks(environ)
    first = _FIRST.fullmatch(environ.get(LEADER, "").partition(":")[0])
    if first is None:
        raise UsageError(
            f"{LEADER} is {environ.get(LEADER) or 'not set'}, expected the first pod's name, JOB-pods-0: this is no "
            "pod of HyperPod's training operator"
        )
    job = from_variables(NAME, environ)
    if job is None:
        raise UsageError("PET_NNODES isn't set to 2 or more, expected the job's replicas beside PET_MASTER_ADDR")
    unnamed = job.unnamed and job.unnamed._replace(name=pod_name(environ))
    return job._replace(name=first["job"], unnamed=unnamed, paths=pod_paths(environ))


def _found(environ: Mapping[str, str], _base: str) -> bool:
    first = _FIRST.fullmatch(environ.get(LEADER, "").partition(":")[0])
    own = first and re.fullmatch(re.escape(first["job"]) + "-pods-[0-9]+", pod_name(environ))
    return bool(own and environ.get("PET_NNODES", "1").partition(":")[0] not in ("", "1"))


PLATFORM = Platform(
    name=NAME,
    title=TITLE,
    read=read_job,
    variables=("PET_", "KUBERNETES_SERVICE", "HOSTNAME"),
    found=_found,
    folder=BASE,
    sample=Sample(
        "train-pods-{rank}",
        {
            "KUBERNETES_SERVICE_HOST": "10.96.0.1",
            "HOSTNAME": "{host}",
            "PET_NNODES": "{hosts}",
            "PET_NODE_RANK": "{rank}",
            LEADER: "{leader}",
            "PET_MASTER_PORT": "23456",
        },
    ),
    row=DocsRow(
        "#hyperpod",
        "`PET_*` of the training operator's pods; on Slurm as there",
        "`muster launch …`",
        "",
        "`/opt/ml` too, where it can be made, else as on machines of your own",
        "as on Kubernetes",
    ),
)
