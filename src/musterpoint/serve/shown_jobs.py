"""What the page shows of jobs of every kind: a row of each, and more of the one that is looked at."""

from __future__ import annotations

import os
from typing import Any, Callable, Mapping, NamedTuple

from musterpoint.serve import pipeline_definition, processing_request, training_request
from musterpoint.serve.errors import absent
from musterpoint.serve.operations import Context, Request, executions, processing_jobs, training_jobs, tuning_jobs
from musterpoint.serve.operations.tuning_jobs import most_jobs
from musterpoint.serve.state import PROCESSING, TRAINING, Record, key_of, split_key

MOST_JOBS = 200
"""Of each kind."""
_AS_JOBS_SAY = {"Executing": "InProgress", "Succeeded": "Completed"}
"""The statuses of pipelines, in the words of jobs."""


class Shown(NamedTuple):
    """A kind of jobs on the page.

    ``label``: what the page calls it. ``size``: how large a job is, in words. ``hosts``: whose logs there are.
    ``about``: what it runs, in short texts. ``parts``: the rows of what it consists of. ``stop``: has it stopped.
    """

    label: str
    size: Callable[[Record], str]
    hosts: Callable[[Record], tuple[str, ...]]
    about: Callable[[Record], list[str]]
    parts: Callable[[Context, Record], list[dict[str, Any]]]
    stop: Callable[[Context, Record], object]


def row(record: Record) -> dict[str, Any]:
    """A job in the list."""
    return {
        "key": key_of(record.kind, record.name),
        "kind": KINDS[record.kind].label,
        "name": _name(record),
        "status": record.status,
        "state": _AS_JOBS_SAY.get(record.status, record.status),
        "secondary": _step_of(record, record.facts.get("SecondaryStatus", "")),
        "created": record.created,
        "size": KINDS[record.kind].size(record),
    }


def rows(context: Context) -> list[dict[str, Any]]:
    """The newest jobs of each kind, newest first."""
    found = [record for kind in KINDS for record in context.state.select(kind)[-MOST_JOBS:]]
    return [row(record) for record in sorted(found, key=lambda record: -record.number)]


def details(context: Context, record: Record) -> dict[str, Any]:
    """What the page shows of one job beside its row."""
    kind = KINDS[record.kind]
    return {
        "about": " · ".join(filter(None, kind.about(record))),
        "reason": record.facts.get("FailureReason") or record.facts.get("ExitMessage", ""),
        "transitions": [
            {**each, "Status": _step_of(record, each["Status"])}
            for each in record.facts.get("SecondaryStatusTransitions", ())
        ],
        "parts": kind.parts(context, record),
        "logs": bool(kind.hosts(record)),
        "stoppable": record.ended is None and record.status != "Stopping",
        "trains": record.kind == TRAINING,
        "spot": record.kind == TRAINING and training_request.is_spot(record.request),
    }


def the(context: Context, key: str) -> Record:
    """The job with this key.

    Raises:
        ApiError: there is none, or the page doesn't show its kind.
    """
    kind, name = split_key(key)
    found = context.state.find(kind, name) if kind in KINDS else None
    if found is None:
        raise absent()
    return found


def hosts(record: Record) -> tuple[str, ...]:
    """The names of the hosts that have logs."""
    return KINDS[record.kind].hosts(record)


def stop(context: Context, key: str) -> None:
    """Has the job stopped.

    Raises:
        ApiError: it is over, or there is none.
    """
    record = the(context, key)
    KINDS[record.kind].stop(context, record)


def runs(context: Context, record: Record) -> list[str]:
    """The directories of the job's runs, the newest last."""
    folder = context.settings.job_directory(key_of(record.kind, record.name))
    try:
        numbers = sorted(int(name[4:]) for name in os.listdir(folder) if name.startswith("run-") and name[4:].isdigit())
    except FileNotFoundError:
        return []
    return [os.path.join(folder, f"run-{number}") for number in numbers]


def newest_run(context: Context, record: Record) -> str:
    """The directory of the job's newest run, or of the job where there is none."""
    found = runs(context, record)
    return found[-1] if found else context.settings.job_directory(key_of(record.kind, record.name))


def _name(record: Record) -> str:
    if record.kind != executions.KIND:
        return record.name
    return f"{record.name.partition('/')[0]}: {record.facts['PipelineExecutionDisplayName']}"


def _step_of(record: Record, status: str) -> str:
    """A step on a job's way, which is kept in the words of training jobs."""
    return "Processing" if status == "Training" and record.kind == PROCESSING else status


def _counted(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def _training_about(record: Record) -> list[str]:
    request = record.request
    resources = request.get("ResourceConfig") or {}
    model = (record.facts.get("ModelArtifacts") or {}).get("S3ModelArtifacts", "")
    return [
        f"{len(training_request.hosts(request))} × {resources.get('InstanceType') or 'instance groups'}",
        request.get("AlgorithmSpecification", {}).get("TrainingImage", ""),
        f"model: {model}" if model else "",
    ]


def _processing_about(record: Record) -> list[str]:
    cluster = record.request["ProcessingResources"]["ClusterConfig"]
    image = record.request["AppSpecification"]["ImageUri"]
    return [f"{len(processing_request.hosts(record.request))} × {cluster['InstanceType']}", image]


def _tuning_about(record: Record) -> list[str]:
    config = record.request["HyperParameterTuningJobConfig"]
    limits = config["ResourceLimits"]
    return [config["Strategy"], f"{limits['MaxParallelTrainingJobs']} at once, {most_jobs(record.request)} at most"]


def _pipeline_about(record: Record) -> list[str]:
    values = ", ".join(f"{name}={value}" for name, value in record.facts["_values"].items())
    return [record.facts.get("PipelineExecutionDescription", ""), values]


def _part(name: str, status: str, note: str = "", key: str = "") -> dict[str, Any]:
    """A row; ``key``: of the job that it leads to, or empty."""
    return {"name": name, "status": status, "state": _AS_JOBS_SAY.get(status, status), "note": note, "key": key}


def _tried(context: Context, record: Record) -> list[dict[str, Any]]:
    """The training jobs of a tuning job, the best first."""
    found = []
    for each in tuning_jobs.ranked(context, record):
        tuned = ", ".join(f"{name}={value}" for name, value in each["TunedHyperParameters"].items())
        metric: Mapping[str, Any] = each.get("FinalHyperParameterTuningJobObjectiveMetric", {})
        value = f"{metric['MetricName']} {metric['Value']:g}; " if metric else ""
        name = each["TrainingJobName"]
        found.append(_part(name, each["TrainingJobStatus"], value + tuned, key_of(TRAINING, name)))
    return found


def _steps(context: Context, record: Record) -> list[dict[str, Any]]:
    """The steps of an execution, in the order of the pipeline."""
    found = []
    for name, step in pipeline_definition.read(record.facts["_definition"]).steps.items():
        told: Mapping[str, Any] = record.facts["_steps"].get(name, {})
        arn = next((value["Arn"] for value in told.get("Metadata", {}).values() if "Arn" in value), "")
        job = context.state.by_arn(arn) if arn else None
        note = f"{step.kind} {told.get('FailureReason', '')}".strip()
        found.append(
            _part(name, told.get("StepStatus", "not started"), note, key_of(job.kind, job.name) if job else "")
        )
    return found


def _of_hosts(
    label: str,
    hosts: Callable[[Mapping[str, Any]], tuple[str, ...]],
    about: Callable[[Record], list[str]],
    stop: Callable[[Context, Record], object],
) -> Shown:
    """A kind whose jobs run on hosts. ``hosts``: those of a request."""
    return Shown(
        label,
        lambda record: _counted(len(hosts(record.request)), "host"),
        lambda record: hosts(record.request),
        about,
        lambda context, record: [],
        stop,
    )


KINDS: Mapping[str, Shown] = {
    TRAINING: _of_hosts(
        "training",
        training_request.hosts,
        _training_about,
        lambda context, record: training_jobs.stop(
            Request("StopTrainingJob", {"TrainingJobName": record.name}, context)
        ),
    ),
    PROCESSING: _of_hosts(
        "processing",
        processing_request.hosts,
        _processing_about,
        lambda context, record: processing_jobs.stop(
            Request("StopProcessingJob", {"ProcessingJobName": record.name}, context)
        ),
    ),
    tuning_jobs.KIND: Shown(
        "tuning",
        lambda record: f"{record.facts['_made']} of {_counted(most_jobs(record.request), 'job')}",
        lambda record: (),
        _tuning_about,
        _tried,
        lambda context, record: tuning_jobs.stop(
            Request("StopHyperParameterTuningJob", {"HyperParameterTuningJobName": record.name}, context)
        ),
    ),
    executions.KIND: Shown(
        "pipeline",
        lambda record: _counted(len(pipeline_definition.read(record.facts["_definition"]).steps), "step"),
        lambda record: (),
        _pipeline_about,
        _steps,
        lambda context, record: executions.stop(
            Request("StopPipelineExecution", {"PipelineExecutionArn": record.arn}, context)
        ),
    ),
}
"""By what the state calls them."""
