"""Training jobs: CreateTrainingJob and what is asked of one afterwards."""

from __future__ import annotations

from typing import Any, Mapping

from musterpoint.serve.context import Request
from musterpoint.serve.errors import absent, in_use, invalid, not_here
from musterpoint.serve.listing import listed
from musterpoint.serve.operations.hosted_jobs import begun, keep_job, stop_job
from musterpoint.serve.operations.tags import tags_of
from musterpoint.serve.operations.training_checks import check, unfollowed
from musterpoint.serve.state import Record
from musterpoint.serve.transitions import KIND, OVER

_ECHOED = (
    "TrainingJobName", "HyperParameters", "AlgorithmSpecification", "RoleArn", "InputDataConfig", "OutputDataConfig",
    "ResourceConfig", "VpcConfig", "StoppingCondition", "CheckpointConfig", "DebugHookConfig", "ExperimentConfig",
    "DebugRuleConfigurations", "TensorBoardOutputConfig", "ProfilerConfig", "ProfilerRuleConfigurations",
    "Environment", "RetryStrategy", "RemoteDebugConfig", "InfraCheckConfig",
)  # fmt: skip
"""What Describe gives back as it was asked."""
_OUTPUT = {"KmsKeyId": "", "CompressionType": "GZIP"}
"""What Describe says of outputs where nothing was asked; SDK v2's ``attach`` reads it."""
_FLAGS = ("EnableNetworkIsolation", "EnableInterContainerTrafficEncryption", "EnableManagedSpotTraining")


def create(request: Request) -> Mapping[str, Any]:
    """Keeps the job and has it run; the answer doesn't wait for that."""
    context, parameters = request.context, dict(request.parameters)
    tags = tags_of(parameters.pop("Tags", None))
    check(context, parameters)
    record = add_job(request, parameters, tags)
    for text in unfollowed(context, parameters):
        context.say(f"{record.name}: {text}")
    return {"TrainingJobArn": record.arn}


def add_job(request: Request, parameters: Mapping[str, Any], tags: Mapping[str, str], parent: str = "") -> Record:
    """The new job, checked already, as it stands in the state; it is run from now on."""
    context, name = request.context, parameters["TrainingJobName"]
    job = begun(context, KIND, name, parameters, parent)
    taken = (
        "Training job names must be unique within an AWS account and region, and a training job with this name "
        "already exists"
    )
    return keep_job(context, job, tags, taken)


def job_of(request: Request) -> Record:
    """The job that the request names."""
    found = request.context.state.find(KIND, request.parameters["TrainingJobName"])
    if found is None:
        raise absent()
    return found


def describe(request: Request) -> Mapping[str, Any]:
    return described(job_of(request))


def described(record: Record) -> dict[str, Any]:
    """What Describe answers for ``record``."""
    found: dict[str, Any] = {"TrainingJobArn": record.arn, "TrainingJobStatus": record.status}
    found.update({name: record.request[name] for name in _ECHOED if record.request.get(name) is not None})
    found.update({name: bool(record.request.get(name, False)) for name in _FLAGS})
    found["OutputDataConfig"] = {**_OUTPUT, **found["OutputDataConfig"]}
    found.update(CreationTime=record.created, LastModifiedTime=record.modified, **record.shown)
    return found


def list_(request: Request) -> Mapping[str, Any]:
    where = ["0"] if request.parameters.get("WarmPoolStatusEquals") else []  # no job has a warm pool
    if "TrainingPlanArnEquals" in request.parameters:
        raise not_here("ListTrainingJobs", "training plans (TrainingPlanArnEquals)")
    page = listed(request.context.state, KIND, request.parameters, where, [])
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
    request.context.runner.forget(record.name)  # first: a new job of that name finds nothing of this one
    request.context.state.remove(KIND, record.name)
    return {}


def stop(request: Request) -> Mapping[str, Any]:
    record = job_of(request)
    if record.status in OVER:
        raise invalid(f"The request was rejected because the training job is in status {record.status}.")
    stop_job(request.context, record)
    return {}
