"""Tuning jobs: what is drawn, how many run at once, the best of them, and their stop."""

from __future__ import annotations

from typing import Any

import pytest
from botocore.exceptions import ClientError

from musterpoint.serve.drawing import combination, combinations, drawn
from musterpoint.serve.early_stops import CannotStop, Hyperband, Median, rule_of

from .jobs import BUCKET, IMAGE, ROLE, Account

SQUARE = """
import argparse
parser = argparse.ArgumentParser()
parser.add_argument("--side", type=float)
given, _ = parser.parse_known_args()
print(f"loss={(given.side - 3) ** 2};")
"""
OBJECTIVE = {"Type": "Minimize", "MetricName": "loss"}


def tune(account: Account, name: str, script: str, ranges: dict[str, Any], **config: Any) -> None:
    algorithm = {"TrainingImage": IMAGE, "TrainingInputMode": "File",
                 "MetricDefinitions": [{"Name": "loss", "Regex": "loss=([0-9.]+);"}]}  # fmt: skip
    account.sagemaker.create_hyper_parameter_tuning_job(
        HyperParameterTuningJobName=name,
        HyperParameterTuningJobConfig={
            "Strategy": "Random", "HyperParameterTuningJobObjective": OBJECTIVE, "ParameterRanges": ranges,
            "ResourceLimits": {"MaxNumberOfTrainingJobs": 3, "MaxParallelTrainingJobs": 2}, **config,
        },
        TrainingJobDefinition={
            "StaticHyperParameters": account.code(name, train=script), "AlgorithmSpecification": algorithm,
            "RoleArn": ROLE, "OutputDataConfig": {"S3OutputPath": f"s3://{BUCKET}/tuned"},
            "ResourceConfig": {"InstanceType": "ml.m5.large", "InstanceCount": 1, "VolumeSizeInGB": 1},
            "StoppingCondition": {"MaxRuntimeInSeconds": 600},
        },
    )  # fmt: skip


def jobs(account: Account, name: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = account.sagemaker.list_training_jobs_for_hyper_parameter_tuning_job(
        HyperParameterTuningJobName=name, SortBy="CreationTime", SortOrder="Ascending"
    )["TrainingJobSummaries"]
    return found


def wait(account: Account, name: str) -> dict[str, Any]:
    """What Describe says once all its training jobs are over."""
    while True:
        for job in jobs(account, name):
            account.server.wait(job["TrainingJobName"])
        found = account.sagemaker.describe_hyper_parameter_tuning_job(HyperParameterTuningJobName=name)
        if found["HyperParameterTuningJobStatus"] not in ("InProgress", "Stopping"):
            return dict(found)


def test_a_grid_has_every_combination_and_a_best_one(account: Account) -> None:
    ranges = {"CategoricalParameterRanges": [{"Name": "side", "Values": ["1", "2.5", "9"]}]}
    tune(account, "grid", SQUARE, ranges, Strategy="Grid", ResourceLimits={"MaxParallelTrainingJobs": 2})
    done = wait(account, "grid")
    assert done["HyperParameterTuningJobStatus"] == "Completed", [
        job.get("FailureReason") for job in jobs(account, "grid")
    ]
    assert done["TrainingJobStatusCounters"]["Completed"] == 3
    assert [job["TunedHyperParameters"] for job in jobs(account, "grid")] == [
        {"side": "1"},
        {"side": "2.5"},
        {"side": "9"},
    ]
    best = done["BestTrainingJob"]
    assert best["TunedHyperParameters"] == {"side": "2.5"}
    assert best["FinalHyperParameterTuningJobObjectiveMetric"] == {**OBJECTIVE, "Value": 0.25}


@pytest.mark.lane("sdk")
def test_a_stop_ends_the_jobs_that_run(account: Account) -> None:
    ranges = {"IntegerParameterRanges": [{"Name": "side", "MinValue": "1", "MaxValue": "9"}]}
    tune(account, "stopped", "import time; time.sleep(300)", ranges)
    assert len(jobs(account, "stopped")) == 2, "as many as may run at once"
    account.sagemaker.stop_hyper_parameter_tuning_job(HyperParameterTuningJobName="stopped")
    done = wait(account, "stopped")
    assert done["HyperParameterTuningJobStatus"] == "Stopped"
    assert done["TrainingJobStatusCounters"]["Stopped"] == len(jobs(account, "stopped")) == 2


EPOCHS = """
import os, signal
number = int(os.environ["TRAINING_JOB_NAME"].split("-")[1])
for epoch in range(3):
    print(f"loss={max(number, 2)};", flush=True)
if number > 2:
    signal.pause()
"""
"""The first two jobs are good and end themselves; others are worse, and only a stop ends them."""


@pytest.mark.lane("sdk")
@pytest.mark.parametrize(
    ("name", "config"),
    [
        ("hyperband", {"Strategy": "Hyperband",
                       "StrategyConfig": {"HyperbandStrategyConfig": {"MinResource": 2, "MaxResource": 9}}}),
        ("auto", {"TrainingJobEarlyStoppingType": "Auto"}),
    ],
)  # fmt: skip
def test_what_is_worse_than_others_is_stopped(account: Account, name: str, config: dict[str, Any]) -> None:
    ranges = {"IntegerParameterRanges": [{"Name": "side", "MinValue": "1", "MaxValue": "9"}]}
    limits = {"MaxNumberOfTrainingJobs": 4, "MaxParallelTrainingJobs": 1}
    tune(account, name, EPOCHS, ranges, ResourceLimits=limits, **config)
    found = wait(account, name)
    statuses = [job["TrainingJobStatus"] for job in jobs(account, name)]
    assert statuses == ["Completed", "Completed", "Stopped", "Stopped"]
    assert found["HyperParameterTuningJobStatus"] == "Completed"
    assert found["ObjectiveStatusCounters"]["Succeeded"] == 4, "what was stopped early has come to something, too"
    assert found["BestTrainingJob"]["FinalHyperParameterTuningJobObjectiveMetric"]["Value"] == 2


def test_rungs_and_medians() -> None:
    hyperband = Hyperband(1, 9)
    assert not hyperband.stops([9], 0, [[1]]), "two jobs are too few to compare"
    assert hyperband.stops([2, 2, 2], 0, [[1], [3]]), "one of three goes on"
    assert not hyperband.stops([1], 0, [[2], [3]])
    assert not hyperband.stops([9, 9], 1, [[1, 1], [1, 1]]), "epoch 2 is no rung"
    assert hyperband.stops([9, 9, 9], 1, [[1, 1, 1], [1, 1, 1]])
    assert not hyperband.stops([1] * 9, 8, []) and hyperband.stops([1] * 10, 9, [])
    assert not Median().stops([5], 0, []) and not Median().stops([5, 5], 1, [[1]])
    assert Median().stops([3], 0, [[1], [2], [9]]) and not Median().stops([2], 0, [[1], [2], [9]])


def test_how_jobs_are_stopped_early_is_checked() -> None:
    assert rule_of({"Strategy": "Random"}, {}) is None
    assert rule_of({"Strategy": "Hyperband"}, {"epochs": '"30"'}) == Hyperband(1, 30)
    for config, text in (
        ({"Strategy": "Hyperband"}, "MaxResource is required"),
        ({"Strategy": "Hyperband", "TrainingJobEarlyStoppingType": "Auto"}, "must be Off"),
        ({"Strategy": "Random", "StrategyConfig": {"HyperbandStrategyConfig": {}}}, "Hyperband only"),
        ({"Strategy": "Hyperband", "StrategyConfig": {"HyperbandStrategyConfig": {"MaxResource": 20_001}}}, "20000"),
    ):
        with pytest.raises(CannotStop, match=text):
            rule_of(config, {})


def test_what_cannot_be_tuned_is_refused(account: Account) -> None:
    with pytest.raises(ClientError, match="MaxResource is required"):
        tune(account, "hyper", SQUARE, {}, Strategy="Hyperband")
    with pytest.raises(ClientError, match="Requested resource not found"):
        account.sagemaker.describe_hyper_parameter_tuning_job(HyperParameterTuningJobName="none")


RANGES = {
    "IntegerParameterRanges": [{"Name": "i", "MinValue": "1", "MaxValue": "3"}],
    "ContinuousParameterRanges": [
        {"Name": "c", "MinValue": "0.0001", "MaxValue": "1", "ScalingType": "Logarithmic"},
        {"Name": "r", "MinValue": "0.5", "MaxValue": "0.99", "ScalingType": "ReverseLogarithmic"},
    ],
    "CategoricalParameterRanges": [{"Name": "k", "Values": ["a", "b"]}],
}


def test_values_are_in_their_ranges_and_the_same_after_a_restart() -> None:
    found = [drawn(RANGES, f"job//{number}") for number in range(300)]
    assert found == [drawn(RANGES, f"job//{number}") for number in range(300)]
    assert {each["i"] for each in found} == {"1", "2", "3"} and {each["k"] for each in found} == {"a", "b"}
    assert all(0.0001 <= float(each["c"]) <= 1 and 0.5 <= float(each["r"]) <= 0.99 for each in found)
    assert sum(float(each["c"]) < 0.01 for each in found) > 100, "half of them, on a logarithmic scale"


def test_a_grid_is_counted() -> None:
    ranges = {"CategoricalParameterRanges": [{"Name": "a", "Values": ["1", "2"]}, {"Name": "b", "Values": ["x", "y"]}]}
    assert combinations(ranges) == 4
    assert [combination(ranges, number) for number in range(4)] == [
        {"a": "1", "b": "x"}, {"a": "1", "b": "y"}, {"a": "2", "b": "x"}, {"a": "2", "b": "y"},
    ]  # fmt: skip
