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
from musterpoint.serve.warm_pool import keep_alive

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
    pool = context.warm_pools.take(name, parameters)
    if keep_alive(parameters):
        job = job._replace(facts={**job.facts, "WarmPoolStatus": {"Status": "InUse"}, "_warm_from": pool})
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
    wanted = request.parameters.get("WarmPoolStatusEquals")
    where = ["json_extract(facts, '$.WarmPoolStatus.Status') = ?"] if wanted else []
    if "TrainingPlanArnEquals" in request.parameters:
        raise not_here("ListTrainingJobs", "training plans (TrainingPlanArnEquals)")
    page = listed(request.context.state, KIND, request.parameters, where, [wanted] if wanted else [])
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
    """Changes how long the warm pool is kept; nothing else of a job can be changed here."""
    record, parameters = job_of(request), request.parameters
    for name in parameters:
        if name not in ("TrainingJobName", "ResourceConfig"):
            raise not_here("UpdateTrainingJob", f"an update of {name}")
    seconds = parameters.get("ResourceConfig", {}).get("KeepAlivePeriodInSeconds")
    if seconds is None:
        raise invalid("No update was requested: expected ResourceConfig.KeepAlivePeriodInSeconds")
    status = record.facts.get("WarmPoolStatus", {}).get("Status")
    if status in (None, "Terminated", "Reused"):
        raise invalid(f"The request was rejected because the job has no warm pool: its status is {status}")
    context = request.context
    context.state.change(KIND, record.name, lambda now: now._replace(facts={**now.facts, "_keep_alive": seconds}))
    context.warm_pools.changed(record.name)
    return {"TrainingJobArn": record.arn}


def delete(request: Request) -> Mapping[str, Any]:
    """Forgets a job that is over; its outputs in S3 stay."""
    record = job_of(request)
    if record.status not in OVER:
        raise in_use(f"The training job is in status {record.status}: stop it first")
    if record.facts.get("WarmPoolStatus", {}).get("Status") == "Available":
        raise in_use("The training job has a warm pool: set its KeepAlivePeriodInSeconds to 0 first")
    request.context.runner.forget(record.name)  # first: a new job of that name finds nothing of this one
    request.context.state.remove(KIND, record.name)
    return {}


def stop(request: Request) -> Mapping[str, Any]:
    record = job_of(request)
    if record.status in OVER:
        raise invalid(f"The request was rejected because the training job is in status {record.status}.")
    stop_job(request.context, record)
    return {}
