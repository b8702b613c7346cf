"""A CreateProcessingJob request as a job for hosts of this machine: the values in it, under the names the runner has.

Nothing is read or written here but what the request says.
"""

from __future__ import annotations

import os
import sys
from typing import Any, Mapping, Sequence

from musterpoint.local.job_request import Container, LocalJob, host_names
from musterpoint.local.tree import BASE
from musterpoint.serve.settings import Settings
from musterpoint.serve.training_request import DEFAULT_MAX_RUNTIME, GRACE, local_image

INPUTS = BASE + "/processing"
"""Where SageMaker has inputs brought to; other paths are refused by the API."""


def hosts(request: Mapping[str, Any]) -> tuple[str, ...]:
    return host_names(request["ProcessingResources"]["ClusterConfig"]["InstanceCount"])


def inputs(request: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    """The inputs that the platform brings, each with its S3Input."""
    found = request.get("ProcessingInputs") or ()
    return [each for each in found if each.get("S3Input") and not each.get("AppManaged")]


def outputs(request: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    """The outputs that the platform takes away, each with its S3Output."""
    found = (request.get("ProcessingOutputConfig") or {}).get("Outputs") or ()
    return [each for each in found if each.get("S3Output") and not each.get("AppManaged")]


def entry(request: Mapping[str, Any]) -> tuple[str, ...]:
    application = request["AppSpecification"]
    return (*(application.get("ContainerEntrypoint") or ()), *(application.get("ContainerArguments") or ()))


def max_runtime(request: Mapping[str, Any]) -> float:
    """Seconds of processing after which the job is stopped."""
    return float((request.get("StoppingCondition") or {}).get("MaxRuntimeInSeconds", DEFAULT_MAX_RUNTIME))


def config_files(request: Mapping[str, Any], host: str, arn: str) -> dict[str, Any]:
    """The files of ``/opt/ml/config`` on ``host``, by name."""
    return {
        "processingjobconfig.json": {**request, "ProcessingJobArn": arn},
        "resourceconfig.json": {"current_host": host, "hosts": sorted(hosts(request))},
    }


def local_job(settings: Settings, request: Mapping[str, Any], empty: str) -> LocalJob:
    """The job for :mod:`musterpoint.local`; ``empty`` is an empty directory: the code is one of the inputs."""
    container = None
    if settings.backend == "docker":
        isolated = bool((request.get("NetworkConfig") or {}).get("EnableNetworkIsolation", False))
        image = local_image(settings, request["AppSpecification"]["ImageUri"])
        container = Container(image, isolated=isolated, entry=entry(request))
    return LocalJob(
        name=request["ProcessingJobName"],
        hosts=hosts(request),
        program="",
        source_dir=empty,
        environment=dict(request.get("Environment") or {}),
        region=settings.region,
        grace=GRACE,
        stop_after=max_runtime(request),
        container=container,
    )


def python_first(path: str) -> str:
    """PATH with this process's Python before any other: hosts that aren't containers run in it."""
    return os.pathsep.join((os.path.dirname(sys.executable), path)) if path else os.path.dirname(sys.executable)


def as_host_sees(words: Sequence[str], tree: str) -> tuple[str, ...]:
    """The command of a host that finds its ``/opt/ml`` at ``tree``."""
    if tree == BASE:
        return (*words,)
    return tuple(tree + word[len(BASE) :] if f"{word}/".startswith(f"{BASE}/") else word for word in words)
