"""Hyperparameter tuning jobs: training jobs with values that are drawn, a few at a time, and the best one of them."""

from __future__ import annotations

import hashlib
import threading
from typing import Any, Mapping, Sequence

from musterpoint.serve.context import Context, Request
from musterpoint.serve.early_stops import CannotStop, rule_of
from musterpoint.serve.errors import ApiError, absent, in_use, invalid
from musterpoint.serve.job_keys import key_of
from musterpoint.serve.listing import listed
from musterpoint.serve.operations import training_jobs
from musterpoint.serve.operations.hosted_jobs import stop_job
from musterpoint.serve.operations.tags import tags_of
from musterpoint.serve.operations.training_checks import check, unfollowed
from musterpoint.serve.state import AlreadyThere, Record
from musterpoint.serve.transitions import KIND as TRAINING_JOB
from musterpoint.serve.transitions import OVER
from musterpoint.serve.tuning_request import (
    OBJECTIVE,
    definitions,
    most_jobs,
    next_job,
    number_of,
    objective_of,
    training_request,
)

KIND = "hyper-parameter-tuning-job"
_ADVANCING = threading.Lock()
"""Held while jobs are made, so that no two threads make the same one."""
_ECHOED = ("HyperParameterTuningJobConfig", "TrainingJobDefinition", "TrainingJobDefinitions", "WarmStartConfig")
Fields = Mapping[str, Any]


def create(request: Request) -> Fields:
    """Keeps the tuning job; its first training jobs are made at once."""
    return {"HyperParameterTuningJobArn": add(request).arn}


def add(request: Request, parent: str = "") -> Record:
    """The new tuning job. Raises ApiError where it can't be run."""
    context, parameters = request.context, dict(request.parameters)
    tags = tags_of(parameters.pop("Tags", None))
    name, config = parameters["HyperParameterTuningJobName"], parameters["HyperParameterTuningJobConfig"]
    if not definitions(parameters):
        raise invalid("TrainingJobDefinition or TrainingJobDefinitions is required")
    for definition in definitions(parameters):
        if not objective_of(parameters, definition):
            raise invalid("HyperParameterTuningJobObjective is required")
        try:
            rule_of(config, definition.get("StaticHyperParameters") or {})
        except CannotStop as error:
            raise invalid(str(error)) from None
        check(context, training_request(parameters, definition, f"{name}-001", {}))
    for former in (parameters.get("WarmStartConfig") or {}).get("ParentHyperParameterTuningJobs", ()):
        if context.state.find(KIND, former["HyperParameterTuningJobName"]) is None:
            raise invalid(f"Could not find the parent tuning job {former['HyperParameterTuningJobName']}")
    try:
        record = context.state.add(
            KIND, name, context.settings.arn(KIND, name), "InProgress", parameters, {"_made": 0}, tags, parent
        )
    except AlreadyThere as there:
        raise in_use(f"A tuning job with this name already exists ({there.record.arn})") from None
    for text in _unfollowed(context, parameters):
        context.say(f"{name}: {text}")
    advance(context, name)
    return record


def _unfollowed(context: Context, parameters: Fields) -> list[str]:
    """A sentence for everything in the request that has no effect here."""
    config = parameters["HyperParameterTuningJobConfig"]
    said = []
    if config["Strategy"] in ("Bayesian", "Hyperband"):
        said.append(f"{config['Strategy']}: values are drawn at random, whatever earlier jobs came to")
    if config.get("TuningJobCompletionCriteria"):
        said.append("TuningJobCompletionCriteria: the tuning job ends with its last training job")
    if config["ResourceLimits"].get("MaxRuntimeInSeconds"):
        said.append("MaxRuntimeInSeconds of ResourceLimits: only the time of each training job is limited")
    if (parameters.get("Autotune") or {}).get("Mode") == "Enabled":
        said.append("Autotune: nothing is chosen that the request leaves out")
    if parameters.get("WarmStartConfig"):
        said.append("WarmStartConfig: nothing is learned from the parents")
    for definition in definitions(parameters):
        said += unfollowed(context, training_request(parameters, definition, "", {}))
    return list(dict.fromkeys(said))


def children(context: Context, record: Record) -> list[Record]:
    """The training jobs of a tuning job, in their order."""
    return context.state.select(TRAINING_JOB, "parent = ?", (record.arn,))


def advance(context: Context, name: str) -> Record | None:
    """Makes the jobs that there is room for, and ends the tuning job ``name`` when all are over; how it then stands."""
    with _ADVANCING:
        record = context.state.find(KIND, name)
        if record is not None and record.ended is None:
            _make(context, record)
            record = context.state.find(KIND, name)
        return record


def _make(context: Context, record: Record) -> None:
    jobs = children(context, record)
    running = sum(job.status not in OVER for job in jobs)
    limits = record.request["HyperParameterTuningJobConfig"]["ResourceLimits"]
    number = max([record.facts["_made"], *(number_of(record, job) + 1 for job in jobs)])
    while record.status == "InProgress" and number < most_jobs(record.request):
        if running >= limits["MaxParallelTrainingJobs"]:
            return
        definition, tuned = next_job(record.request, record.name, number)
        digest = hashlib.sha256(f"{record.arn}/{number}/{record.created}".encode()).hexdigest()[:8]
        name = f"{record.name}-{number + 1:03}-{digest}"
        parameters = training_request(record.request, definition, name, tuned)
        training_jobs.add_job(Request("CreateTrainingJob", parameters, context), parameters, {}, record.arn)
        number, running = number + 1, running + 1
        made = {"_made": number}
        context.state.change(KIND, record.name, lambda now: now._replace(facts={**now.facts, **made}))  # noqa: B023
        context.notices.send(key_of(KIND, record.name))
    if running == 0:
        context.state.change(KIND, record.name, lambda found: _ended(found, jobs))
        context.notices.send(key_of(KIND, record.name))


def _ended(record: Record, jobs: Sequence[Record]) -> Record | None:
    if record.ended is not None:
        return None
    over = max((job.ended or 0.0 for job in jobs), default=record.created)
    if record.status == "Stopping":
        return record._replace(status="Stopped", ended=over)
    if any(job.status != "Failed" for job in jobs):
        return record._replace(status="Completed", ended=over)
    reason = "No training job succeeded before MaxNumberOfTrainingJobs was reached"
    return record._replace(status="Failed", ended=over, facts={**record.facts, "FailureReason": reason})


def of(request: Request) -> Record:
    """The tuning job that the request names, as far as it has come."""
    found = advance(request.context, request.parameters["HyperParameterTuningJobName"])
    if found is None:
        raise absent()
    return found


def describe(request: Request) -> Fields:
    return described(request.context, of(request))


def described(context: Context, record: Record) -> Fields:
    """What Describe answers for ``record``."""
    jobs = children(context, record)
    rows = [summary(record, job) for job in jobs]
    found: dict[str, Any] = {
        "HyperParameterTuningJobName": record.name,
        "HyperParameterTuningJobArn": record.arn,
        "HyperParameterTuningJobStatus": record.status,
        "CreationTime": record.created,
        "LastModifiedTime": record.modified,
        "TrainingJobStatusCounters": _statuses(jobs),
        "ObjectiveStatusCounters": _objectives(rows),
        **record.shown,
    }
    for field in (
        "HyperParameterTuningJobConfig",
        "TrainingJobDefinition",
        "TrainingJobDefinitions",
        "WarmStartConfig",
    ):
        if record.request.get(field):
            found[field] = record.request[field]
    if record.ended is not None:
        found["HyperParameterTuningEndTime"] = record.ended
    best = _best(rows)
    return {**found, "BestTrainingJob": best} if best else found


def _statuses(jobs: Sequence[Record]) -> dict[str, int]:
    names = {"Completed": "Completed", "Failed": "NonRetryableError", "Stopped": "Stopped"}
    found = dict.fromkeys(("Completed", "InProgress", "RetryableError", "NonRetryableError", "Stopped"), 0)
    for job in jobs:
        found[names.get(job.status, "InProgress")] += 1
    return found


def _objectives(rows: Sequence[Fields]) -> dict[str, int]:
    found = dict.fromkeys(("Succeeded", "Pending", "Failed"), 0)
    for row in rows:
        found[row["ObjectiveStatus"]] += 1
    return found


def _best(rows: Sequence[Fields]) -> Fields | None:
    scored = [row for row in rows if row["ObjectiveStatus"] == "Succeeded"]
    if not scored:
        return None
    largest = scored[0]["FinalHyperParameterTuningJobObjectiveMetric"]["Type"] == "Maximize"
    chosen = max if largest else min
    return chosen(scored, key=lambda row: row["FinalHyperParameterTuningJobObjectiveMetric"]["Value"])


def summary(record: Record, job: Record) -> dict[str, Any]:
    """A training job as its tuning job lists it."""
    definition, _ = next_job(record.request, record.name, number_of(record, job))
    objective = objective_of(record.request, definition)
    own = {*(definition.get("StaticHyperParameters") or {}), OBJECTIVE}
    given = job.request.get("HyperParameters") or {}
    found: dict[str, Any] = {
        "TrainingJobName": job.name,
        "TrainingJobArn": job.arn,
        "CreationTime": job.created,
        "TrainingJobStatus": job.status,
        "TunedHyperParameters": {name: value for name, value in given.items() if name not in own},
        "ObjectiveStatus": "Pending" if job.status not in OVER else "Failed",
    }
    if definition.get("DefinitionName"):
        found["TrainingJobDefinitionName"] = definition["DefinitionName"]
    for field in ("TrainingStartTime", "TrainingEndTime", "FailureReason"):
        if job.facts.get(field):
            found[field] = job.facts[field]
    for metric in job.facts.get("FinalMetricDataList", ()):
        if metric["MetricName"] == objective["MetricName"] and job.status in ("Completed", "Stopped"):
            final = {"Type": objective["Type"], "MetricName": metric["MetricName"], "Value": metric["Value"]}
            found.update(FinalHyperParameterTuningJobObjectiveMetric=final, ObjectiveStatus="Succeeded")
    return found


def ranked(context: Context, record: Record) -> list[dict[str, Any]]:
    """Its training jobs, the best first; those without a value are last."""
    rows = [summary(record, job) for job in children(context, record)]
    best = _best(rows)
    down = best is not None and best["FinalHyperParameterTuningJobObjectiveMetric"]["Type"] == "Maximize"
    scored = [row for row in rows if row["ObjectiveStatus"] == "Succeeded"]
    scored.sort(key=_value, reverse=down)
    return [*scored, *(row for row in rows if row["ObjectiveStatus"] != "Succeeded")]


def list_(request: Request) -> Fields:
    page = listed(request.context.state, KIND, request.parameters)
    rows = []
    for record in page.records:
        jobs = children(request.context, record)
        counters = {
            "TrainingJobStatusCounters": _statuses(jobs),
            "ObjectiveStatusCounters": _objectives([summary(record, job) for job in jobs]),
            "ResourceLimits": record.request["HyperParameterTuningJobConfig"]["ResourceLimits"],
        }
        ended = {"HyperParameterTuningEndTime": record.ended} if record.ended is not None else {}
        rows.append(
            {
                "HyperParameterTuningJobName": record.name,
                "HyperParameterTuningJobArn": record.arn,
                "HyperParameterTuningJobStatus": record.status,
                "Strategy": record.request["HyperParameterTuningJobConfig"]["Strategy"],
                "CreationTime": record.created,
                "LastModifiedTime": record.modified,
                **ended,
                **counters,
            }
        )
    return page.answer("HyperParameterTuningJobSummaries", rows)


def list_jobs(request: Request) -> Fields:
    """The training jobs of one tuning job, a page at a time."""
    record, parameters = of(request), dict(request.parameters)
    by_value = parameters.get("SortBy") == "FinalObjectiveMetricValue"
    if by_value:
        parameters.pop("SortBy")
    page = listed(request.context.state, TRAINING_JOB, parameters, ["parent = ?"], [record.arn])
    rows = [summary(record, job) for job in page.records]
    if by_value:
        down = parameters.get("SortOrder", "Ascending") == "Descending"
        rows.sort(key=_value, reverse=down)
    return page.answer("TrainingJobSummaries", rows)


def _value(row: Fields) -> float:
    """The objective of a training job; 0 where there is none."""
    return float(row.get("FinalHyperParameterTuningJobObjectiveMetric", {}).get("Value", 0.0))


def stop(request: Request) -> Fields:
    record = of(request)
    if record.ended is not None:
        raise invalid(f"The request was rejected because the tuning job is in status {record.status}.")
    stop_one(request.context, record)
    return {}


def stop_one(context: Context, record: Record) -> None:
    """Has the tuning job and its training jobs stopped."""
    context.state.change(
        KIND, record.name, lambda found: found._replace(status="Stopping") if found.ended is None else None
    )
    context.notices.send(key_of(KIND, record.name))
    for job in children(context, record):
        if job.status not in OVER:
            stop_job(context, job)
    advance(context, record.name)


def changed(context: Context, name: str) -> None:
    """The training job ``name`` has changed: it may be stopped early, or its tuning job may go on."""
    job = context.state.find(TRAINING_JOB, name)
    record = context.state.by_arn(job.parent) if job is not None and job.parent else None
    if job is not None and record is not None and record.kind == KIND and record.ended is None:
        go_on(context, record, [job])


def go_on(context: Context, record: Record, jobs: Sequence[Record]) -> None:
    """Stops those of the tuning job's training jobs ``jobs`` that aren't worth their time, and makes the next ones."""
    try:
        for job in jobs:
            if job.status not in (*OVER, "Stopping"):
                _judge(context, record, job)
        advance(context, record.name)
    except ApiError as error:
        context.say(f"{record.name}: {error.message}")


def _judge(context: Context, record: Record, job: Record) -> None:
    """Stops ``job`` where the strategy says so by what it has come to since it was judged last."""
    definition, _ = next_job(record.request, record.name, number_of(record, job))
    rule = rule_of(record.request["HyperParameterTuningJobConfig"], definition.get("StaticHyperParameters") or {})
    seen = job.facts.get("_judged", 0)
    own = context.state.measured(job.arn) if rule is not None else []
    if rule is None or len(own) == seen:
        return
    sign = -1 if objective_of(record.request, definition)["Type"] == "Maximize" else 1
    others = [
        [sign * value for value in context.state.measured(other.arn)]
        for other in children(context, record)
        if other.arn != job.arn and (other.status in OVER or rule.counts_running)
    ]
    if rule.stops([sign * value for value in own], seen, others):
        context.say(f"{job.name}: stopped early, after {len(own)} values of the objective")
        stop_job(context, job)
    judged = {"_judged": len(own)}
    context.state.change(TRAINING_JOB, job.name, lambda now: now._replace(facts={**now.facts, **judged}))
