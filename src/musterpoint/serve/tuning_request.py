"""A CreateHyperParameterTuningJob request: its training jobs as CreateTrainingJob requests, one after the other."""

from __future__ import annotations

from typing import Any, Mapping, Sequence

from musterpoint.serve.drawing import combination, combinations, drawn
from musterpoint.serve.state import Record

OBJECTIVE = "_tuning_objective_metric"
"""The hyperparameter that SageMaker adds to each job."""
_TAKEN = (
    "RoleArn", "InputDataConfig", "VpcConfig", "OutputDataConfig", "ResourceConfig", "StoppingCondition", "Environment",
    "EnableNetworkIsolation", "EnableInterContainerTrafficEncryption", "EnableManagedSpotTraining", "CheckpointConfig",
    "RetryStrategy",
)  # fmt: skip
"""What a job has of its definition as it stands."""
Fields = Mapping[str, Any]


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
