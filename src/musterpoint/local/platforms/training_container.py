"""SageMaker: a tree in ``/opt/ml`` on every host, and ``train`` in each container."""

from __future__ import annotations

import json
import sys
from typing import Any, Mapping

from musterpoint.base.settings import LOCAL, MODULE, PROGRAM_ARGS
from musterpoint.core.job.sagemaker_files import GRACE
from musterpoint.core.job.sdk import framework_of, from_sdk
from musterpoint.local import tree
from musterpoint.local.job_request import LocalJob, host_names
from musterpoint.local.platforms.local_platform import HostProcess, LocalPlatform, PlayedHost
from musterpoint.local.results import ALGORITHM_ERROR

ENTRY = (sys.executable, "-m", "musterpoint.cli.train")
"""The command that stands for the platform's ``train``."""


def container_environment(host: PlayedHost) -> dict[str, str]:
    """The variables of a training container, and those by which ``train`` learns the command line's words."""
    job = host.job
    found = {
        "MUSTER_PLATFORM": "sagemaker",
        "TRAINING_JOB_NAME": job.name,
        "TRAINING_JOB_ARN": f"arn:aws:sagemaker:local:000000000000:training-job/{job.name.lower()}",
        PROGRAM_ARGS: json.dumps(list(job.arguments)),
    }
    if not job.container:
        found["SAGEMAKER_BASE_DIR"] = host.tree
    if job.module:
        found[MODULE] = "1"
    if not _is_launcher(job):
        found[LOCAL] = "1"
    return found


def _is_launcher(job: LocalJob) -> bool:
    """Whether the program is itself a launcher (it gets --train-script); it then runs once per host."""
    return "train-script" in job.hyperparameters or any(
        word.partition("=")[0] == "--train-script" for word in job.arguments
    )


def _read_distribution(distribution: Mapping[str, Any], _hosts: int) -> dict[str, Any]:
    return {**from_sdk(distribution, framework_of(distribution))}


PLAYED = LocalPlatform(
    host_names=host_names,
    read_distribution=_read_distribution,
    check=lambda job: None,
    prepare=tree.write,
    environment=container_environment,
    processes=lambda host: (HostProcess(ENTRY),),
    namings=True,
    failure_head=ALGORITHM_ERROR,
    grace=GRACE,
)
