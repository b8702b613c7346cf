"""A CreateTrainingJob request as a job for hosts of this machine.

Nothing is read or written here but what the request says.
"""

from __future__ import annotations

import json
import os
import re
from typing import Any, Iterable, Mapping, NamedTuple

from musterpoint.base.below import ForeignName, parts_of
from musterpoint.base.errors import UsageError
from musterpoint.base.metrics import Metric, read_metric
from musterpoint.core.job.distribution import enabled
from musterpoint.core.job.hyperparameters import decode
from musterpoint.core.launch.launchers import asked_by, readers
from musterpoint.local.job_request import Container, LocalJob, host_names
from musterpoint.local.tree import BASE
from musterpoint.serve.instance_types import gpus_of
from musterpoint.serve.settings import Settings

DEFAULT_MAX_RUNTIME = 86400
"""Seconds that SageMaker gives a job that asks for nothing else."""
GRACE = 120.0
"""Seconds between SIGTERM and SIGKILL."""
CHECKPOINTS = "/opt/ml/checkpoints"
HOMOGENEOUS = "homogeneousCluster"
"""SageMaker's name of the only group of a job without instance groups."""
_S3 = re.compile(r"s3://([^/]+)/?(.*)", re.DOTALL)


class Group(NamedTuple):
    """Hosts of one instance type."""

    name: str
    instance_type: str
    hosts: tuple[str, ...]


def groups(request: Mapping[str, Any]) -> tuple[Group, ...]:
    """The job's instance groups; hosts are numbered through."""
    resources = request["ResourceConfig"]
    given = resources.get("InstanceGroups") or [
        {
            "InstanceGroupName": HOMOGENEOUS,
            "InstanceType": resources.get("InstanceType", ""),
            "InstanceCount": resources.get("InstanceCount", 1),
        }
    ]
    names = host_names(sum(group["InstanceCount"] for group in given))
    found, start = [], 0
    for group in given:
        end = start + group["InstanceCount"]
        found.append(Group(group["InstanceGroupName"], group["InstanceType"], names[start:end]))
        start = end
    return tuple(found)


def hosts(request: Mapping[str, Any]) -> tuple[str, ...]:
    """The names of all hosts, in the order of their ranks."""
    return tuple(host for group in groups(request) for host in group.hosts)


def group_of(request: Mapping[str, Any], host: str) -> Group:
    return next(group for group in groups(request) if host in group.hosts)


def split_uri(uri: str) -> tuple[str, str]:
    """``s3://bucket/key`` as bucket and key; both empty where it is no such URI."""
    found = _S3.fullmatch(uri)
    return (found[1], found[2]) if found else ("", "")


def output_uri(request: Mapping[str, Any]) -> str:
    """The place of the job's outputs: ``<S3OutputPath>/<job>/output``."""
    return f"{request['OutputDataConfig']['S3OutputPath'].rstrip('/')}/{request['TrainingJobName']}/output"


def compressed(request: Mapping[str, Any]) -> bool:
    return bool(request["OutputDataConfig"].get("CompressionType", "GZIP") != "NONE")


def model_uri(request: Mapping[str, Any]) -> str:
    """The URI in ModelArtifacts."""
    return output_uri(request) + ("/model.tar.gz" if compressed(request) else "/model/")


def archives(request: Mapping[str, Any]) -> tuple[str, ...]:
    """The URIs of the archives that the job may leave."""
    return (model_uri(request), f"{output_uri(request)}/output.tar.gz") if compressed(request) else ()


def max_runtime(request: Mapping[str, Any]) -> float:
    """Seconds of training after which the job is stopped."""
    return float(request.get("StoppingCondition", {}).get("MaxRuntimeInSeconds", DEFAULT_MAX_RUNTIME))


def max_wait(request: Mapping[str, Any]) -> float:
    """Seconds after its creation at which a spot job is given up."""
    found = request.get("StoppingCondition", {}).get("MaxWaitTimeInSeconds")
    return float(found) if found is not None else float("inf")


def attempts(request: Mapping[str, Any]) -> int:
    """The number of further starts after an error of SageMaker's own."""
    return int((request.get("RetryStrategy") or {}).get("MaximumRetryAttempts", 0))


def is_spot(request: Mapping[str, Any]) -> bool:
    return bool(request.get("EnableManagedSpotTraining", False))


def in_tree(path: str) -> str:
    """A path of a host as a name below its ``/opt/ml``.

    Raises:
        UsageError: it isn't below that folder, or no file can have it.
    """
    found = os.path.normpath(path)
    if not found.startswith(f"{BASE}/"):
        raise UsageError(f"LocalPath {path!r} must begin with {BASE}/")
    name = found[len(BASE) + 1 :]
    try:
        parts_of(name)
    except ForeignName as error:
        raise UsageError(f"LocalPath: {error}") from None
    return name


def checkpoint_path(request: Mapping[str, Any]) -> str:
    """The path of the checkpoints on a host."""
    return str((request.get("CheckpointConfig") or {}).get("LocalPath") or CHECKPOINTS).rstrip("/")


def input_mode(request: Mapping[str, Any], channel: Mapping[str, Any]) -> str:
    """``File``, ``Pipe`` or ``FastFile``."""
    job = request["AlgorithmSpecification"].get("TrainingInputMode", "File")
    return str(channel.get("InputMode") or job)


def local_job(settings: Settings, request: Mapping[str, Any], empty: str) -> LocalJob:
    """The job for :mod:`musterpoint.local`. ``empty`` is an empty directory: the code comes as the request says."""
    return LocalJob(
        name=request["TrainingJobName"],
        hosts=hosts(request),
        program="",
        source_dir=empty,
        hyperparameters=dict(request.get("HyperParameters") or {}),
        environment=dict(request.get("Environment") or {}),
        region=settings.region,
        grace=GRACE,
        stop_after=max_runtime(request),
        host_slots=slots(settings, request),
        container=container(settings, request),
        options={"MUSTER_LOG_PREFIX": "none"},
        metrics=metrics(request),
    )


def metrics(request: Mapping[str, Any]) -> tuple[Metric, ...]:
    """The job's metric definitions. A UsageError names one that can't be used."""
    given = request["AlgorithmSpecification"].get("MetricDefinitions") or []
    found = []
    for each in given:
        where = f"MetricDefinition {each['Name']}"
        metric = read_metric(each["Name"], each["Regex"], where)
        found.append(metric._replace(pattern=TimedPattern(metric.regex, where)))
    return tuple(found)


class TimedPattern:
    """A pattern whose search of a line ends after a time. Some need years for one, and would hold a job's output up.

    ``re`` knows no limit, and nothing ends its search in a thread. A UsageError begins with ``where``.
    """

    SECONDS = 1.0

    def __init__(self, text: str, where: str) -> None:
        import regex  # 20 ms that only jobs with metrics take

        try:
            self._pattern = regex.compile(text)
        except regex.error as error:
            raise UsageError(f"{where}: {text!r} is no regular expression: {error}") from None

    def finditer(self, line: str, /) -> Iterable[Any]:
        """A TimeoutError: the search has taken that time."""
        found: Iterable[Any] = self._pattern.finditer(line, timeout=self.SECONDS)
        return found


def slots(settings: Settings, request: Mapping[str, Any]) -> tuple[int, ...]:
    """The ranks of each host, where they go by its type. None: this machine, or the program, decides."""
    if settings.gpus != "as-type" or not _starts_ranks(request):
        return ()
    return tuple(max(1, gpus_of_type(request, host)) for host in hosts(request))


def _starts_ranks(request: Mapping[str, Any]) -> bool:
    """Tells whether the job's launcher reads a number of ranks. Others would say that it has no effect."""
    asked = (request.get("Environment") or {}).get("MUSTER_LAUNCHER", "auto")
    found = decode(request.get("HyperParameters") or {}, "HyperParameters")
    try:
        kinds = enabled({each.name: each.value for each in found})
    except UsageError:
        kinds = ()  # the hosts say what is wrong
    launchers = [name for kind in kinds[:1] for name, _ in asked_by(kind)] if asked == "auto" else [asked]
    return not {*readers("slots")}.isdisjoint(launchers)


def gpus_of_type(request: Mapping[str, Any], host: str) -> int:
    """The GPUs of an instance of the host's type."""
    return gpus_of(group_of(request, host).instance_type) or 0


def container(settings: Settings, request: Mapping[str, Any]) -> Container | None:
    """The containers that are the job's hosts; None: hosts aren't containers."""
    if settings.backend != "docker":
        return None
    return Container(
        local_image(settings, request["AlgorithmSpecification"]["TrainingImage"]),
        isolated=bool(request.get("EnableNetworkIsolation", False)),
        entry=entry(request),
    )


def config_files(request: Mapping[str, Any], host: str, arn: str, run: int) -> dict[str, Any]:
    """The files of ``/opt/ml/input/config`` on ``host``, by name. ``run`` counts the starts of the job from 1."""
    channels = request.get("InputDataConfig") or []
    own = group_of(request, host)
    found: dict[str, Any] = {
        "hyperparameters.json": dict(request.get("HyperParameters") or {}),
        "resourceconfig.json": {
            "current_host": host,
            "current_instance_type": own.instance_type,
            "current_group_name": own.name,
            "hosts": sorted(hosts(request)),
            "instance_groups": [
                {"instance_group_name": name, "instance_type": kind, "hosts": list(names)}
                for name, kind, names in groups(request)
            ],
            "network_interface_name": "eth0",
            "topology": None,
        },
        "inputdataconfig.json": {
            channel["ChannelName"]: _channel(channel) for channel in channels if _is_on(channel, own.name)
        },
        "metric-definition-regex.json": request["AlgorithmSpecification"].get("MetricDefinitions") or [],
        "trainingjobconfig.json": {**request, "TrainingJobArn": arn},
        "upstreamoutputdataconfig.json": [],
        "init-config.json": {
            "hostConfig": {"clusterSize": len(hosts(request)), "hostNumber": hosts(request).index(host) + 1},
            "jobRunInfo": {"jobRunNumber": run},
        },
    }
    if request.get("CheckpointConfig"):
        found["checkpointconfig.json"] = {"LocalPath": checkpoint_path(request)}
    for name, field in (
        ("debughookconfig.json", "DebugHookConfig"),
        ("profilerconfig.json", "ProfilerConfig"),
        ("tensorboardoutputconfig.json", "TensorBoardOutputConfig"),
    ):
        if request.get(field):
            found[name] = request[field]
    return found


def is_on(request: Mapping[str, Any], channel: Mapping[str, Any], host: str) -> bool:
    """Tells whether ``host`` gets ``channel``."""
    return _is_on(channel, group_of(request, host).name)


def _is_on(channel: Mapping[str, Any], group: str) -> bool:
    wanted = (channel.get("DataSource", {}).get("S3DataSource") or {}).get("InstanceGroupNames")
    return not wanted or group in wanted


def _channel(channel: Mapping[str, Any]) -> dict[str, str]:
    source = channel.get("DataSource", {}).get("S3DataSource") or {}
    found = {
        "TrainingInputMode": "File",
        "S3DistributionType": source.get("S3DataDistributionType", "FullyReplicated"),
        "RecordWrapperType": channel.get("RecordWrapperType", "None"),
    }
    return {**found, "ContentType": channel["ContentType"]} if channel.get("ContentType") else found


def entry(request: Mapping[str, Any]) -> tuple[str, ...]:
    """The command in the place of the image's own, or none: ContainerEntrypoint and ContainerArguments."""
    algorithm = request["AlgorithmSpecification"]
    return (*(algorithm.get("ContainerEntrypoint") or ()), *(algorithm.get("ContainerArguments") or ()))


def to_file(content: Any) -> str:
    return json.dumps(content, indent=1) + "\n"


def local_image(settings: Settings, uri: str) -> str:
    """The image that ``--image`` names for ``uri``, whole, without its tag, or by its repository."""
    repository = uri.rpartition("/")[2]
    for name in (uri, uri.partition("@")[0], _untagged(uri), repository, _untagged(repository)):
        if name in settings.images:
            return settings.images[name]
    return uri


def _untagged(uri: str) -> str:
    head, colon, tag = uri.rpartition(":")
    return head if colon and "/" not in tag else uri
