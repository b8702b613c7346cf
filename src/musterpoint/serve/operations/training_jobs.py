"""Training jobs: CreateTrainingJob and what is asked of one afterwards."""

from __future__ import annotations

import re
import urllib.parse
from typing import Any, Iterator, Mapping, Sequence

from musterpoint.base.errors import UsageError
from musterpoint.local.job_status import OVER
from musterpoint.serve import training_request as requested
from musterpoint.serve.errors import ApiError, absent, in_use, invalid, not_here
from musterpoint.serve.instance_types import gpus_of
from musterpoint.serve.operations import Context, Request
from musterpoint.serve.operations.tags import tags_of
from musterpoint.serve.state import AlreadyThere, Record, listed

_ECHOED = (
    "TrainingJobName", "HyperParameters", "AlgorithmSpecification", "RoleArn", "InputDataConfig", "OutputDataConfig",
    "ResourceConfig", "VpcConfig", "StoppingCondition", "CheckpointConfig", "DebugHookConfig", "ExperimentConfig",
    "DebugRuleConfigurations", "TensorBoardOutputConfig", "ProfilerConfig", "ProfilerRuleConfigurations",
    "Environment", "RetryStrategy", "RemoteDebugConfig", "InfraCheckConfig",
)  # fmt: skip
"""Fields that Describe gives back as they were asked."""
_OUTPUT = {"KmsKeyId": "", "CompressionType": "GZIP"}
"""Describe's word of outputs where nothing was asked; SDK v2's ``attach`` reads it."""
MOST_INSTANCES = 250
"""Of one job."""
_FLAGS = ("EnableNetworkIsolation", "EnableInterContainerTrafficEncryption", "EnableManagedSpotTraining")


def create(request: Request) -> Mapping[str, Any]:
    """Keeps the job and has it run; the answer doesn't wait for that."""
    context, parameters = request.context, dict(request.parameters)
    tags = tags_of(parameters.pop("Tags", None))
    _check(context, parameters)
    notes = _ignored_fields(context, parameters)
    try:
        record = context.jobs.add(
            parameters["TrainingJobName"], parameters, tags, notes, requested.max_wait(parameters)
        )
    except AlreadyThere as there:
        raise in_use(
            "Training job names must be unique within an AWS account and region, and a training job with this name "
            f"already exists ({there.record.arn})"
        ) from None
    for text in notes:
        context.say(f"{record.name}: {text}")
    return {"TrainingJobArn": record.arn}


def job_of(request: Request) -> Record:
    """The job that the request names."""
    return job_called(request.context, request.parameters["TrainingJobName"])


def job_called(context: Context, name: str) -> Record:
    """The job of this name; an ApiError where there is none."""
    found = context.state.find(name)
    if found is None:
        raise absent()
    return found


def describe(request: Request) -> Mapping[str, Any]:
    return described(job_of(request))


def described(record: Record) -> dict[str, Any]:
    """Describe's answer for ``record``."""
    found: dict[str, Any] = {"TrainingJobArn": record.arn, "TrainingJobStatus": record.status}
    found.update({name: record.request[name] for name in _ECHOED if record.request.get(name) is not None})
    found.update({name: bool(record.request.get(name, False)) for name in _FLAGS})
    found["OutputDataConfig"] = {**_OUTPUT, **found["OutputDataConfig"]}
    found.update(CreationTime=record.created, LastModifiedTime=record.modified, **record.shown)
    return found


def list_(request: Request) -> Mapping[str, Any]:
    pooled = bool(request.parameters.get("WarmPoolStatusEquals"))  # no job has a warm pool
    if "TrainingPlanArnEquals" in request.parameters:
        raise not_here("ListTrainingJobs", "training plans (TrainingPlanArnEquals)")
    page = listed([] if pooled else request.context.state.select(), request.parameters)
    return page.answer("TrainingJobSummaries", [summary(record) for record in page.records])


def summary(record: Record) -> dict[str, Any]:
    """The job as a list has it."""
    found = {
        "TrainingJobName": record.name,
        "TrainingJobArn": record.arn,
        "CreationTime": record.created,
        "LastModifiedTime": record.modified,
        "TrainingJobStatus": record.status,
        "SecondaryStatus": record.facts["SecondaryStatus"],
    }
    over = record.facts.get("TrainingEndTime") or record.ended
    return {**found, "TrainingEndTime": over} if over else found


def update(request: Request) -> Mapping[str, Any]:
    """Refuses: only a warm pool can be changed, and no job has one."""
    record = job_of(request)
    raise invalid(f"The request was rejected because the job {record.name} has no warm pool")


def delete(request: Request) -> Mapping[str, Any]:
    """Forgets a job that is over; its outputs in S3 stay."""
    record = job_of(request)
    if record.status not in OVER:
        raise in_use(f"The training job is in status {record.status}: stop it first")
    request.context.jobs.forget(record.name)  # first: a new job of that name finds nothing of this one
    request.context.state.remove(record.name)
    return {}


def stop(request: Request) -> Mapping[str, Any]:
    record = job_of(request)
    if record.status in OVER:
        raise invalid(f"The request was rejected because the training job is in status {record.status}.")
    request.context.jobs.stop(record)
    return {}


_FOLLOWED: Mapping[str, str] = {
    "": "TrainingJobName HyperParameters RoleArn Environment RetryStrategy CheckpointConfig DebugHookConfig "
    "EnableManagedSpotTraining EnableNetworkIsolation",
    "AlgorithmSpecification": "TrainingImage TrainingInputMode MetricDefinitions ContainerEntrypoint "
    "ContainerArguments",
    "InputDataConfig": "ChannelName ContentType CompressionType InputMode",
    "InputDataConfig.DataSource": "S3DataSource",
    "OutputDataConfig": "S3OutputPath CompressionType",
    "ResourceConfig": "InstanceType InstanceCount InstanceGroups VolumeSizeInGB",
    "StoppingCondition": "MaxRuntimeInSeconds MaxWaitTimeInSeconds",
}
"""Names of fields that are followed or passed on whole, by the path above them."""
_TEXTS: Mapping[str, str] = {
    "AlgorithmSpecification.EnableSageMakerMetricsTimeSeries": "metrics are in CloudWatch only",
    "AlgorithmSpecification.TrainingImageConfig": "images are this machine's own; none is pulled",
    "InputDataConfig.RecordWrapperType": "files stay as they are; nothing is made a record",
    "InputDataConfig.ShuffleConfig": "keys come in their order",
    "OutputDataConfig.KmsKeyId": "nothing is encrypted",
    "ResourceConfig.VolumeKmsKeyId": "nothing is encrypted",
    "ResourceConfig.KeepAlivePeriodInSeconds": "there are no instances to keep, and no warm pool",
    "ResourceConfig.TrainingPlanArn": "nothing is reserved here",
    "ResourceConfig.InstancePlacementConfig": "all hosts are on this machine",
    "ResourceConfig.InstancePreferences": "the job has the hosts of InstanceType and InstanceCount",
    "StoppingCondition.MaxPendingTimeInSeconds": "a job is pending as long as others run (--max-jobs)",
    "TensorBoardOutputConfig": "its configuration is passed on, and nothing of its LocalPath goes to S3",
    "ProfilerConfig": "its configuration is passed on, and nothing is profiled",
    "ExperimentConfig": "no experiment or trial is kept",
    "VpcConfig": "the job has this machine's network",
    "DebugRuleConfigurations": "no rules are evaluated; the hook's configuration is passed on",
    "ProfilerRuleConfigurations": "no rules are evaluated",
    "RemoteDebugConfig": "there is no SSM session into a job",
    "InfraCheckConfig": "no health check runs before the job",
    "SessionChainingConfig": "session tags aren't passed on",
    "EnableInterContainerTrafficEncryption": "nothing leaves this machine, and nothing is encrypted",
    "ServerlessJobConfig": "jobs run on hosts of this machine",
    "MlflowConfig": "nothing is sent to MLflow",
    "ModelPackageConfig": "no model package is made",
}
"""Reasons why others have no effect, by their paths."""
_AS_FILE = {
    "FastFile": "downloaded before the job starts",
    "Pipe": "downloaded before the job starts; nothing is unpacked, shuffled or made a record",
}
_BUILT_IN = re.compile(
    r"^[^/]+/(kmeans|linear-learner|factorization-machines|pca|lda|ntm|randomcutforest|knn|ipinsights|blazingtext|"
    r"seq2seq|object2vec|image-classification|object-detection|semantic-segmentation|forecasting-deepar)(:|$)"
)
"""Algorithms of AWS's own, whose code is in their images only."""


def _check(context: Context, parameters: Mapping[str, Any]) -> None:
    """Returns where the job can be run.

    Raises:
        ApiError: it can't; the text is SageMaker's where it has one.
    """
    for field in ("AlgorithmSpecification", "ResourceConfig"):
        if field not in parameters:
            raise invalid(f"{field} is required")
    _check_algorithm(parameters)
    try:
        requested.metrics(parameters)
    except UsageError as error:
        raise invalid(str(error)) from None
    _check_resources(parameters["ResourceConfig"])
    _check_spot(parameters)
    try:
        requested.in_tree(requested.checkpoint_path(parameters))
    except UsageError as error:
        raise invalid(f"CheckpointConfig: {error}") from None
    names = [channel["ChannelName"] for channel in parameters.get("InputDataConfig") or ()]
    if len(set(names)) < len(names):
        raise invalid(f"Duplicate channel names found: {', '.join(names)}")
    _check_groups(parameters)
    for channel in parameters.get("InputDataConfig") or ():
        _check_channel(context, parameters, channel)
    _check_place(context, parameters["OutputDataConfig"]["S3OutputPath"], "OutputDataConfig.S3OutputPath")
    if parameters.get("CheckpointConfig"):
        _check_place(context, parameters["CheckpointConfig"]["S3Uri"], "CheckpointConfig.S3Uri")
    _refuse_nul(parameters.get("Environment"), requested.entry(parameters))


def _check_algorithm(parameters: Mapping[str, Any]) -> None:
    algorithm = parameters["AlgorithmSpecification"]
    if "TrainingImage" not in algorithm:
        raise invalid(
            "AlgorithmSpecification: muster serve runs a TrainingImage; algorithms of AWS Marketplace (AlgorithmName) "
            "aren't on this machine"
        )
    found = _BUILT_IN.match(algorithm["TrainingImage"])
    if found:
        raise invalid(
            f"{algorithm['TrainingImage']}: {found[1]} is a built-in algorithm of SageMaker, whose code is in AWS's "
            "image only; muster serve runs jobs with code of their own"
        )


def _check_resources(resources: Mapping[str, Any]) -> None:
    alone = "InstanceType" in resources and "InstanceCount" in resources
    groups = resources.get("InstanceGroups")
    if groups and ("InstanceType" in resources or "InstanceCount" in resources):
        raise invalid("ResourceConfig: expected InstanceGroups, or InstanceType and InstanceCount, not both")
    if not groups and not alone:
        raise invalid("ResourceConfig: expected InstanceType and InstanceCount, or InstanceGroups")
    names = [group["InstanceGroupName"] for group in groups or ()]
    if len(set(names)) < len(names):
        raise invalid(f"ResourceConfig: two instance groups have one name: {', '.join(names)}")
    count = sum(group["InstanceCount"] for group in groups) if groups else resources["InstanceCount"]
    if count < 1:
        raise invalid("ResourceConfig: expected one instance or more")
    if count > MOST_INSTANCES:
        raise ApiError(
            "ResourceLimitExceeded",
            f"The service limit for training job usage of muster serve is {MOST_INSTANCES} Instances, with a request "
            f"delta of {count} Instances: all hosts of a job are on this machine",
        )


def _check_spot(parameters: Mapping[str, Any]) -> None:
    stopping = parameters.get("StoppingCondition") or {}
    wait = stopping.get("MaxWaitTimeInSeconds")
    if not requested.is_spot(parameters):
        if wait is not None:
            raise invalid("MaxWaitTimeInSeconds above 0 is supported only for spot training jobs")
        return
    if wait is None:
        raise invalid("MaxWaitTimeInSeconds must be specified when EnableManagedSpotTraining is true")
    if wait < requested.max_runtime(parameters):
        raise invalid(
            "Invalid MaxWaitTimeInSeconds. It must be present and be greater than or equal to MaxRuntimeInSeconds"
        )
    if parameters["ResourceConfig"].get("KeepAlivePeriodInSeconds"):
        raise invalid("KeepAlivePeriodInSeconds can't be specified when EnableManagedSpotTraining is true")


def _check_groups(parameters: Mapping[str, Any]) -> None:
    """Refuses groups that the job hasn't, and groups of some of the channels only."""
    known = [group["InstanceGroupName"] for group in parameters["ResourceConfig"].get("InstanceGroups") or ()]
    named: dict[str, list[str]] = {}
    for channel in parameters.get("InputDataConfig") or ():
        source = (channel.get("DataSource") or {}).get("S3DataSource") or {}
        named[channel["ChannelName"]] = source.get("InstanceGroupNames") or []
        for group in named[channel["ChannelName"]]:
            if group not in known:
                raise invalid(
                    f"Channel {channel['ChannelName']}: InstanceGroupNames has {group}, which is no instance group of "
                    f"ResourceConfig ({', '.join(known) or 'there are none'})"
                )
    without = [name for name, groups in named.items() if not groups]
    if without and len(without) < len(named):
        raise invalid(
            "InstanceGroupNames must be specified for all channels or for none of them; these have none: "
            f"{', '.join(without)}"
        )


def _check_channel(context: Context, parameters: Mapping[str, Any], channel: Mapping[str, Any]) -> None:
    name, sources = channel["ChannelName"], channel.get("DataSource") or {}
    if name in (".", ".."):
        raise invalid(f"Channel {name}: no folder can have this name")
    source = sources.get("S3DataSource")
    if source is None:
        given = ", ".join(sources) or "none"
        raise invalid(f"Channel {name}: muster serve brings S3DataSource, and the channel's source is {given}")
    kind, mode = source["S3DataType"], requested.input_mode(parameters, channel)
    if kind not in ("S3Prefix", "ManifestFile"):
        raise invalid(f"Channel {name}: muster serve doesn't bring S3DataType {kind}")
    if mode == "FastFile" and kind != "S3Prefix":
        raise invalid(f"Channel {name}: FastFile needs the S3DataType S3Prefix")
    if channel.get("CompressionType") == "Gzip" and mode != "Pipe":
        raise invalid(f"Channel {name}: the CompressionType Gzip is supported in Pipe mode only")
    uri = source["S3Uri"]
    bucket = _bucket_of(uri)
    if not _has_objects(context, uri):
        raise invalid(
            f'No S3 objects found under S3 URL "{uri}" given in input data source. Please ensure that the bucket '
            f"exists in the selected region ({context.settings.region}), that objects exist under that S3 prefix, and "
            f'that the role "{parameters["RoleArn"]}" has "s3:ListBucket" permissions on bucket "{bucket}".'
        )


def _bucket_of(uri: str) -> str:
    """The bucket of a URI; an ApiError where it is none of S3's."""
    bucket = requested.split_uri(uri)[0]
    if not bucket:
        raise invalid(f"Invalid S3 URI: {uri}")
    return bucket


def _check_place(context: Context, uri: str, field: str) -> None:
    """Refuses a ``uri`` that can't be written to, by the ``field`` that has it."""
    bucket = _bucket_of(uri)
    if context.moto.call("s3", "HEAD", f"/{bucket}").status_code != 200:
        raise invalid(f"The specified bucket does not exist: {bucket} of {field}")


def _refuse_nul(environment: Mapping[str, str] | None, command: Sequence[str]) -> None:
    """Refuses a word with a NUL in it, which no process can get."""
    for name, value in (environment or {}).items():
        if "\0" in value:
            raise invalid(f"Environment: the value of {name} has a NUL in it")
    if any("\0" in word for word in command):
        raise invalid("ContainerEntrypoint, ContainerArguments: a word has a NUL in it")


def _has_objects(context: Context, uri: str) -> bool:
    bucket, prefix = requested.split_uri(uri)
    query = urllib.parse.urlencode({"list-type": "2", "max-keys": "1", "prefix": prefix})
    answer = context.moto.call("s3", "GET", f"/{bucket}?{query}")
    return answer.status_code == 200 and b"<Key>" in answer.data


def _ignored_fields(context: Context, parameters: Mapping[str, Any]) -> list[str]:
    """A sentence for everything in the request that has no effect here."""
    said = _substitutes(context, parameters)
    silent = {f"{above}.{name}".lstrip(".") for above, names in _FOLLOWED.items() for name in names.split()}
    said += dict.fromkeys(_without_effect(parameters, {**_TEXTS, **dict.fromkeys(silent, "")}, ""))
    types = dict.fromkeys(group.instance_type for group in requested.groups(parameters))
    for unknown in (each for each in types if gpus_of(each) is None):
        said.append(f"{unknown}: muster serve doesn't know this instance type, and takes it as one without GPUs")
    for mode, text in _AS_FILE.items():
        channels = parameters.get("InputDataConfig") or ()
        names = [each["ChannelName"] for each in channels if requested.input_mode(parameters, each) == mode]
        if names:
            said.append(f"{mode}: {', '.join(names)} is taken as File, and {text}")
    return said


def _substitutes(context: Context, parameters: Mapping[str, Any]) -> list[str]:
    """Sentences about a job that doesn't run in the image that was asked for."""
    image = parameters["AlgorithmSpecification"]["TrainingImage"]
    if context.settings.backend == "docker":
        local = requested.local_image(context.settings, image)
        return [f"{image} is {local} here (--image)"] if local != image else []
    said = [f"{image} isn't started: the job runs in this machine's Python (--backend docker runs images)"]
    if parameters.get("EnableNetworkIsolation"):
        said.append("EnableNetworkIsolation: hosts of this backend have this machine's network")
    return said


def _without_effect(value: Any, texts: Mapping[str, str], path: str) -> Iterator[str]:
    """A sentence for each field without effect, also for those of newer botocores.

    ``texts``: the sentences by the paths of their fields; empty for a field that is followed or passed on whole.
    """
    if value in (None, False, "", "Off", {}, []):
        return
    if path in texts:
        if texts[path]:
            yield f"{path}: {texts[path]}"
    elif isinstance(value, list):
        for each in value:
            yield from _without_effect(each, texts, path)
    elif isinstance(value, dict):
        for name, each in value.items():
            yield from _without_effect(each, texts, f"{path}.{name}".lstrip("."))
    else:
        yield f"{path}: muster serve doesn't know it, so it has no effect"
