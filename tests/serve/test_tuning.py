"""Tuning jobs: what is drawn, how many run at once, the best of them, and their stop."""

from __future__ import annotations

from typing import Any

import pytest
from botocore.exceptions import ClientError

from musterpoint.serve.operations.tuning_jobs import combination, combinations, drawn

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


def test_what_cannot_be_tuned_is_refused(account: Account) -> None:
    with pytest.raises(ClientError, match="Requested resource not found"):
        account.sagemaker.describe_hyper_parameter_tuning_job(HyperParameterTuningJobName="none")
    one = {"Name": "side", "MinValue": "1", "MaxValue": "9"}
    for said, integers, config in (
        ("has two ranges", [one, one], {}),
        ("Grid takes categorical", [one], {"Strategy": "Grid"}),
        ("not above MaxValue", [{**one, "MinValue": "10"}], {}),
        ("expected integers", [{**one, "MinValue": "0.5"}], {}),
        ("Logarithmic needs", [{**one, "MinValue": "0", "ScalingType": "Logarithmic"}], {}),
    ):
        with pytest.raises(ClientError, match=said):
            tune(account, "wrong", SQUARE, {"IntegerParameterRanges": integers}, **config)


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
