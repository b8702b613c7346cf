"""The jobs that steps of pipelines make: how one is started, found again, and asked what it came to."""

from __future__ import annotations

import hashlib
import re
from typing import Any, Callable, Mapping, NamedTuple

from musterpoint.serve import validation
from musterpoint.serve.context import Context, Request
from musterpoint.serve.job_keys import PROCESSING as PROCESSING_JOB
from musterpoint.serve.job_keys import TRAINING as TRAINING_JOB
from musterpoint.serve.operations import processing_jobs, training_checks, training_jobs, tuning_jobs
from musterpoint.serve.operations.hosted_jobs import stop_job
from musterpoint.serve.operations.tags import tags_of
from musterpoint.serve.pipeline_definition import PROCESSING, TRAINING, TUNING, Step
from musterpoint.serve.state import Record

Fields = Mapping[str, Any]


class JobKind(NamedTuple):
    """The jobs of one kind of step.

    ``kind``: in the state. ``operation``: what makes one, and ``name``: the parameter with its name. ``metadata``: what
    a step's list calls it. ``longest``: of its name. ``add``: makes it. ``properties``: what other steps may refer to.
    """

    kind: str
    operation: str
    name: str
    metadata: str
    longest: int
    add: Callable[[Context, dict[str, Any], str], Record]
    properties: Callable[[Context, Record], Fields]
    stop: Callable[[Context, Record], None]


def _train(context: Context, parameters: dict[str, Any], parent: str) -> Record:
    tags = tags_of(parameters.pop("Tags", None))
    training_checks.check(context, parameters)
    return training_jobs.add_job(Request("CreateTrainingJob", parameters, context), parameters, tags, parent)


def _process(context: Context, parameters: dict[str, Any], parent: str) -> Record:
    tags = tags_of(parameters.pop("Tags", None))
    processing_jobs.check(parameters)
    return processing_jobs.add_job(context, parameters, tags, parent)


def _tune(context: Context, parameters: dict[str, Any], parent: str) -> Record:
    return tuning_jobs.add(Request("CreateHyperParameterTuningJob", parameters, context), parent)


def _tuned(context: Context, job: Record) -> Fields:
    return {**tuning_jobs.described(context, job), "TrainingJobSummaries": tuning_jobs.ranked(context, job)}


JOBS: Mapping[str, JobKind] = {
    TRAINING: JobKind(
        TRAINING_JOB,
        "CreateTrainingJob",
        "TrainingJobName",
        "TrainingJob",
        63,
        _train,
        lambda context, job: training_jobs.described(job),
        stop_job,
    ),
    PROCESSING: JobKind(
        PROCESSING_JOB,
        "CreateProcessingJob",
        "ProcessingJobName",
        "ProcessingJob",
        63,
        _process,
        lambda context, job: processing_jobs.described(job),
        stop_job,
    ),
    TUNING: JobKind(
        tuning_jobs.KIND,
        "CreateHyperParameterTuningJob",
        "HyperParameterTuningJobName",
        "TuningJob",
        32,
        _tune,
        _tuned,
        tuning_jobs.stop_one,
    ),
}
"""By the kind of step."""


def job_name(execution: Record, step: Step) -> str:
    """The name of the step's job: the same whenever it is asked for, so that none is made twice."""
    longest, identity = JOBS[step.kind].longest, execution.name.rpartition("/")[2]
    digest = hashlib.sha256(f"{execution.arn}/{step.name}".encode()).hexdigest()[:8]
    head = "" if longest < 40 else "pipelines-"
    room = longest - len(f"{head}{identity}--{digest}")
    middle = re.sub(r"[^A-Za-z0-9]+", "-", step.name)[:room].strip("-")
    return f"{head}{identity}-{middle}-{digest}"


def start(context: Context, execution: Record, step: Step, arguments: Fields) -> Record:
    """The step's job, made now where it isn't there yet.

    Raises:
        ApiError: it is refused.
    """
    job = JOBS[step.kind]
    name = job_name(execution, step)
    found = context.state.find(job.kind, name)
    if found is not None:
        return found
    parameters = validation.check(job.operation, {**arguments, job.name: name})
    return job.add(context, dict(parameters), execution.arn)
