"""Processing jobs: CreateProcessingJob and what is asked of one afterwards."""

from __future__ import annotations

from typing import Any, Mapping

from musterpoint.base.errors import UsageError
from musterpoint.local.tree import BASE
from musterpoint.serve import processing_request as requested
from musterpoint.serve.errors import absent, in_use, invalid
from musterpoint.serve.operations import Context, Request
from musterpoint.serve.operations.tags import tags_of
from musterpoint.serve.operations.training_jobs import bucket_of, refuse_nul, refuse_too_many, where_it_runs
from musterpoint.serve.operations.without_effect import (
    NO_EXPERIMENT,
    NOT_ENCRYPTED,
    NOTHING_LEAVES,
    OWN_NETWORK,
    without_effect,
)
from musterpoint.serve.state import OVER, AlreadyThere, Record, listed
from musterpoint.serve.state import PROCESSING as KIND
from musterpoint.serve.training_request import in_tree

_ECHOED = (
    "ProcessingInputs", "ProcessingOutputConfig", "ProcessingJobName", "ProcessingResources", "StoppingCondition",
    "AppSpecification", "Environment", "NetworkConfig", "RoleArn", "ExperimentConfig",
)  # fmt: skip
"""What Describe gives back as it was asked."""
_FACTS = ("ExitMessage", "FailureReason", "ProcessingStartTime", "ProcessingEndTime")
Fields = Mapping[str, Any]


def create(request: Request) -> Fields:
    """Keeps the job and has it run; the answer doesn't wait for that."""
    context, parameters = request.context, dict(request.parameters)
    tags = tags_of(parameters.pop("Tags", None))
    check(parameters)
    record = add_job(context, parameters, tags)
    for text in record.facts["_notes"]:
        context.say(f"{record.name}: {text}")
    return {"ProcessingJobArn": record.arn}


def add_job(context: Context, parameters: Fields, tags: Mapping[str, str], parent: str = "") -> Record:
    """The new job, checked already, as it stands in the state; it is run from now on."""
    try:
        notes = _unfollowed(context, parameters)
        return context.jobs.add(KIND, parameters["ProcessingJobName"], parameters, tags, parent, notes)
    except AlreadyThere as there:
        raise in_use(
            "Job name must be unique within an AWS account and region, and a job with this name already exists "
            f"({there.record.arn})"
        ) from None


def check(parameters: Fields) -> None:
    """Returns where the job can be run.

    Raises:
        ApiError: it can't.
    """
    if not parameters["AppSpecification"].get("ContainerEntrypoint"):
        raise invalid(
            "AppSpecification.ContainerEntrypoint: muster serve runs the command that a job names; it doesn't know "
            "that of the image"
        )
    refuse_too_many(parameters["ProcessingResources"]["ClusterConfig"]["InstanceCount"], "processing")
    refuse_nul(parameters.get("Environment"), requested.entry(parameters))
    names = [each["InputName"] for each in parameters.get("ProcessingInputs") or ()]
    if len(set(names)) < len(names):
        raise invalid(f"Duplicate input names found: {', '.join(names)}")
    for each in parameters.get("ProcessingInputs") or ():
        _check_input(each)
    for each in (parameters.get("ProcessingOutputConfig") or {}).get("Outputs") or ():
        _check_output(each)


def _check_input(given: Fields) -> None:
    name = given["InputName"]
    if given.get("DatasetDefinition"):
        raise invalid(f"Input {name}: muster serve brings S3Input; it has no DatasetDefinition (Athena, Redshift)")
    source = given.get("S3Input")
    if source is None:
        raise invalid(f"Input {name}: expected S3Input")
    bucket_of(source["S3Uri"])
    if given.get("AppManaged"):
        return
    _check_path(f"Input {name}", source, requested.INPUTS)
    if source.get("S3InputMode") == "Pipe":
        raise invalid(f"Input {name}: muster serve brings the inputs of processing jobs as files (S3InputMode File)")
    if source.get("S3CompressionType") == "Gzip":
        raise invalid(f"Input {name}: the S3CompressionType Gzip is supported in Pipe mode only")


def _check_output(given: Fields) -> None:
    name = given["OutputName"]
    if given.get("FeatureStoreOutput"):
        raise invalid(f"Output {name}: muster serve takes S3Output; it has no Feature Store")
    place = given.get("S3Output")
    if place is None:
        raise invalid(f"Output {name}: expected S3Output")
    bucket_of(place["S3Uri"])
    if not given.get("AppManaged"):
        _check_path(f"Output {name}", place, BASE)


def _check_path(what: str, place: Fields, above: str) -> None:
    try:
        in_tree(place.get("LocalPath", ""), above)
    except UsageError as error:
        raise invalid(f"{what}: {error}") from None


_FOLLOWED: Mapping[str, str] = {
    "": "ProcessingJobName RoleArn Environment StoppingCondition AppSpecification ProcessingInputs",
    "ProcessingOutputConfig": "Outputs",
    "NetworkConfig": "EnableNetworkIsolation",
    "ProcessingResources.ClusterConfig": "InstanceType InstanceCount VolumeSizeInGB",
}
_TEXTS: Mapping[str, str] = {
    "ProcessingOutputConfig.KmsKeyId": NOT_ENCRYPTED,
    "ProcessingResources.ClusterConfig.VolumeKmsKeyId": NOT_ENCRYPTED,
    "NetworkConfig.VpcConfig": OWN_NETWORK,
    "NetworkConfig.EnableInterContainerTrafficEncryption": NOTHING_LEAVES,
    "ExperimentConfig": NO_EXPERIMENT,
}


def _unfollowed(context: Context, parameters: Fields) -> list[str]:
    """A sentence for everything in the request that has no effect here."""
    image, network = parameters["AppSpecification"]["ImageUri"], parameters.get("NetworkConfig") or {}
    said = where_it_runs(context, image, bool(network.get("EnableNetworkIsolation")))
    said += without_effect(parameters, _FOLLOWED, _TEXTS)
    late = [
        each["OutputName"] for each in requested.outputs(parameters) if each["S3Output"]["S3UploadMode"] == "Continuous"
    ]
    if late:
        said.append(f"S3UploadMode Continuous: {', '.join(late)} is uploaded when the job has ended")
    return said


def job_of(request: Request) -> Record:
    """The job that the request names."""
    name = request.parameters["ProcessingJobName"]
    found = request.context.state.find(KIND, name)
    if found is None:
        raise absent(f"Could not find requested job with name: {name}")
    return found


def describe(request: Request) -> Fields:
    return described(job_of(request))


def described(record: Record) -> dict[str, Any]:
    """What Describe answers for ``record``."""
    found: dict[str, Any] = {"ProcessingJobArn": record.arn, "ProcessingJobStatus": record.status}
    found.update({name: record.request[name] for name in _ECHOED if record.request.get(name) is not None})
    found.update({name: record.facts[name] for name in _FACTS if record.facts.get(name)})
    found.setdefault("StoppingCondition", {"MaxRuntimeInSeconds": round(requested.max_runtime(record.request))})
    return {**found, "CreationTime": record.created, "LastModifiedTime": record.modified}


def list_(request: Request) -> Fields:
    page = listed(request.context.state.select(KIND), request.parameters)
    return page.answer("ProcessingJobSummaries", [_summary(record) for record in page.records])


def _summary(record: Record) -> dict[str, Any]:
    found = {
        "ProcessingJobName": record.name,
        "ProcessingJobArn": record.arn,
        "CreationTime": record.created,
        "LastModifiedTime": record.modified,
        "ProcessingJobStatus": record.status,
    }
    shown = ("ExitMessage", "FailureReason", "ProcessingEndTime")
    return {**found, **{name: record.facts[name] for name in shown if record.facts.get(name)}}


def stop(request: Request) -> Fields:
    record = job_of(request)
    if record.status in OVER:
        raise invalid(f"The request was rejected because the processing job is in status {record.status}.")
    request.context.jobs.stop(record)
    return {}
