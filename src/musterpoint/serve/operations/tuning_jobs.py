"""Hyperparameter tuning jobs: training jobs with values that are drawn, a few at a time, and the best one of them."""

from __future__ import annotations

import hashlib
import itertools
import math
import random
import threading
from typing import Any, Callable, Mapping, Sequence

from musterpoint.serve.errors import ApiError, absent, in_use, invalid
from musterpoint.serve.operations import Context, Request, training_jobs
from musterpoint.serve.operations.tags import tags_of
from musterpoint.serve.operations.training_jobs import check, unfollowed
from musterpoint.serve.operations.without_effect import without_effect
from musterpoint.serve.state import OVER, AlreadyThere, Record, listed
from musterpoint.serve.state import TRAINING as TRAINING_JOB

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
    name = parameters["HyperParameterTuningJobName"]
    if not definitions(parameters):
        raise invalid("TrainingJobDefinition or TrainingJobDefinitions is required")
    for definition in definitions(parameters):
        if not objective_of(parameters, definition):
            raise invalid("HyperParameterTuningJobObjective is required")
        _check_ranges(parameters["HyperParameterTuningJobConfig"]["Strategy"], _ranges(parameters, definition))
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
    strategy = parameters["HyperParameterTuningJobConfig"]["Strategy"]
    said = []
    if strategy in ("Bayesian", "Hyperband"):
        said.append(f"{strategy}: values are drawn at random, whatever earlier jobs came to; every one runs to its end")
    said += without_effect(parameters, _FOLLOWED, _TEXTS)
    for definition in definitions(parameters):
        said += unfollowed(context, training_request(parameters, definition, "", {}))
    return list(dict.fromkeys(said))


def children(context: Context, record: Record) -> list[Record]:
    """The training jobs of a tuning job, in their order."""
    return context.state.select(TRAINING_JOB, lambda job: job.parent == record.arn)


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
        training_jobs.add_job(context, parameters, {}, record.arn)
        number, running = number + 1, running + 1
        made = {"_made": number}
        context.state.change(KIND, record.name, lambda now: now.with_facts(**made))  # noqa: B023
    if running == 0:
        context.state.change(KIND, record.name, lambda found: _ended(found, jobs))


def _ended(record: Record, jobs: Sequence[Record]) -> Record | None:
    if record.ended is not None:
        return None
    over = max((job.ended or 0.0 for job in jobs), default=record.created)
    if record.status == "Stopping":
        return record._replace(status="Stopped", ended=over)
    if any(job.status != "Failed" for job in jobs):
        return record._replace(status="Completed", ended=over)
    reason = "No training job succeeded before MaxNumberOfTrainingJobs was reached"
    return record.with_facts(FailureReason=reason)._replace(status="Failed", ended=over)


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
    for field in _ECHOED:
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
    page = listed(request.context.state.select(KIND), request.parameters)
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
    page = listed(children(request.context, record), parameters)
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
    for job in children(context, record):
        if job.status not in OVER:
            context.jobs.stop(job)
    advance(context, record.name)


def changed(context: Context, job: Record) -> None:
    """The training job ``job`` is over: its tuning job may go on."""
    record = context.state.by_arn(job.parent)
    if record is not None and record.kind == KIND and record.ended is None:
        try:
            advance(context, record.name)
        except ApiError as error:
            context.say(f"{record.name}: {error.message}")


OBJECTIVE = "_tuning_objective_metric"
"""The hyperparameter that SageMaker adds to each job."""
_TAKEN = (
    "RoleArn", "InputDataConfig", "VpcConfig", "OutputDataConfig", "ResourceConfig", "StoppingCondition", "Environment",
    "EnableNetworkIsolation", "EnableInterContainerTrafficEncryption", "EnableManagedSpotTraining", "CheckpointConfig",
    "RetryStrategy",
)  # fmt: skip
"""What a job has of its definition as it stands."""


_NUMBERS: Mapping[str, Callable[[str], float]] = {"IntegerParameterRanges": int, "ContinuousParameterRanges": float}
_RANGES = "IntegerParameterRanges ContinuousParameterRanges CategoricalParameterRanges"
_FOLLOWED: Mapping[str, str] = {
    "": "HyperParameterTuningJobName",
    "HyperParameterTuningJobConfig": "Strategy HyperParameterTuningJobObjective RandomSeed",
    "HyperParameterTuningJobConfig.ResourceLimits": "MaxNumberOfTrainingJobs MaxParallelTrainingJobs",
    "HyperParameterTuningJobConfig.ParameterRanges": _RANGES,
    **{
        f"{definition}{field}": names
        for definition in ("TrainingJobDefinition", "TrainingJobDefinitions")
        for field, names in (
            ("", f"DefinitionName TuningObjective StaticHyperParameters AlgorithmSpecification {' '.join(_TAKEN)}"),
            (".HyperParameterRanges", _RANGES),
            (".HyperParameterTuningResourceConfig", "InstanceType InstanceCount VolumeSizeInGB"),
        )
    },
}
"""Of a definition, also what is said of its training jobs."""
_TEXTS: Mapping[str, str] = {
    "Autotune": "nothing is chosen that the request leaves out",
    "WarmStartConfig": "nothing is learned from the parents",
    "HyperParameterTuningJobConfig.StrategyConfig": "values are drawn at random",
    "HyperParameterTuningJobConfig.TrainingJobEarlyStoppingType": "every training job runs to its end",
    "HyperParameterTuningJobConfig.TuningJobCompletionCriteria": "the tuning job ends with its last training job",
    "HyperParameterTuningJobConfig.ResourceLimits.MaxRuntimeInSeconds": "only each training job's own time is limited",
}


def definitions(parameters: Fields) -> Sequence[Fields]:
    one = parameters.get("TrainingJobDefinition")
    return [one] if one else parameters.get("TrainingJobDefinitions") or []


def objective_of(parameters: Fields, definition: Fields) -> Fields:
    found: Fields = (
        definition.get("TuningObjective")
        or parameters["HyperParameterTuningJobConfig"].get("HyperParameterTuningJobObjective")
        or {}
    )
    return found


def _ranges(parameters: Fields, definition: Fields) -> Fields:
    config = parameters["HyperParameterTuningJobConfig"]
    found: Fields = definition.get("HyperParameterRanges") or config.get("ParameterRanges") or {}
    return found


def _check_ranges(strategy: str, ranges: Fields) -> None:
    """An ApiError names a range from which nothing can be drawn."""
    whole = [(read, each) for field, read in _NUMBERS.items() for each in ranges.get(field) or ()]
    names = [each["Name"] for each in (*(ranges.get("CategoricalParameterRanges") or ()), *(one for _, one in whole))]
    for name in names:
        if names.count(name) > 1:
            raise invalid(f"Parameter ranges: {name} has two ranges")
    if strategy == "Grid" and whole:
        raise invalid(f"Parameter ranges: Grid takes categorical ones only, and {whole[0][1]['Name']} is a number")
    for read, each in whole:
        what = f"Parameter range {each['Name']} ({each['MinValue']} to {each['MaxValue']})"
        try:
            low, high = read(each["MinValue"]), read(each["MaxValue"])
            finite = math.isfinite(float(low)) and math.isfinite(float(high))
        except (ValueError, OverflowError):
            finite = False
        scaling = each.get("ScalingType", "Auto")
        if not finite or low > high:
            kind = "integers" if read is int else "finite numbers"
            raise invalid(f"{what}: expected {kind}, MinValue not above MaxValue")
        if scaling == "Logarithmic" and low <= 0:
            raise invalid(f"{what}: Logarithmic needs values above 0")
        if scaling == "ReverseLogarithmic" and not (low >= 0 and high < 1):
            raise invalid(f"{what}: ReverseLogarithmic needs values of at least 0 and below 1")


def training_request(parameters: Fields, definition: Fields, name: str, tuned: Mapping[str, str]) -> dict[str, Any]:
    """The CreateTrainingJob request of one job."""
    resources = definition.get("HyperParameterTuningResourceConfig") or {}
    single = {"InstanceType", "InstanceCount", "VolumeSizeInGB"}
    found = {
        "ResourceConfig": {key: value for key, value in resources.items() if key in single},
        **{field: definition[field] for field in _TAKEN if definition.get(field) is not None},
    }
    given = {**(definition.get("StaticHyperParameters") or {}), **tuned}
    objective = objective_of(parameters, definition).get("MetricName", "")
    return {
        **found,
        "TrainingJobName": name,
        "AlgorithmSpecification": definition["AlgorithmSpecification"],
        "HyperParameters": {**given, OBJECTIVE: objective},
    }


def most_jobs(parameters: Fields) -> int:
    """How many training jobs there will be."""
    config = parameters["HyperParameterTuningJobConfig"]
    asked = config["ResourceLimits"].get("MaxNumberOfTrainingJobs")
    if config["Strategy"] != "Grid":
        return int(asked or 1)
    whole = sum(combinations(_ranges(parameters, each)) for each in definitions(parameters))
    return min(int(asked), whole) if asked else whole


def next_job(parameters: Fields, name: str, number: int) -> tuple[Fields, dict[str, str]]:
    """The definition and the values of job ``number``, counted from 0."""
    found = definitions(parameters)
    if parameters["HyperParameterTuningJobConfig"]["Strategy"] != "Grid":
        definition = found[number % len(found)]
        seed = parameters["HyperParameterTuningJobConfig"].get("RandomSeed", "")
        return definition, drawn(_ranges(parameters, definition), f"{name}/{seed}/{number}")
    for definition in found:
        size = combinations(_ranges(parameters, definition))
        if number < size:
            return definition, combination(_ranges(parameters, definition), number)
        number -= size
    raise IndexError(number)


def number_of(record: Record, job: Record) -> int:
    """Which of the training jobs ``job`` is, counted from 0: its name says it, also when others have been deleted."""
    return int(job.name.removeprefix(record.name + "-").partition("-")[0]) - 1


def drawn(ranges: Mapping[str, Any], seed: str) -> dict[str, str]:
    """Values at random, as the texts that a training job gets."""
    source = random.Random(seed)
    found = {}
    for each in ranges.get("CategoricalParameterRanges") or ():
        found[each["Name"]] = str(source.choice(each["Values"]))
    for each in ranges.get("IntegerParameterRanges") or ():
        low, high = int(each["MinValue"]), int(each["MaxValue"])
        value = _scaled(low - 0.5, high + 0.5, each.get("ScalingType", "Auto"), source.random(), low)
        found[each["Name"]] = str(min(high, max(low, round(value))))
    for each in ranges.get("ContinuousParameterRanges") or ():
        low_, high_ = float(each["MinValue"]), float(each["MaxValue"])
        value = _scaled(low_, high_, each.get("ScalingType", "Auto"), source.random(), low_)
        found[each["Name"]] = repr(min(high_, max(low_, value)))
    return found


def _scaled(low: float, high: float, scaling: str, share: float, least: float) -> float:
    if scaling == "Logarithmic" and least > 0:
        low = max(low, least / 2)
        return math.exp(math.log(low) + share * (math.log(high) - math.log(low)))
    if scaling == "ReverseLogarithmic" and low >= 0 and high < 1:
        return 1 - math.exp(math.log(1 - low) + share * (math.log(1 - high) - math.log(1 - low)))
    return low + share * (high - low)


def combinations(ranges: Mapping[str, Any]) -> int:
    """How many a grid has."""
    return math.prod(len(each["Values"]) for each in ranges.get("CategoricalParameterRanges") or ())


def combination(ranges: Mapping[str, Any], number: int) -> dict[str, str]:
    """The combination ``number`` of a grid, counted from 0."""
    each: Sequence[Mapping[str, Any]] = ranges.get("CategoricalParameterRanges") or ()
    values = next(itertools.islice(itertools.product(*(one["Values"] for one in each)), number, None))
    return {one["Name"]: str(value) for one, value in zip(each, values, strict=True)}
