"""What a job prints: its log streams, its metrics, and what Describe says of them."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from typing import Any

import pytest
from botocore.exceptions import ClientError

from musterpoint.serve.telemetry import batches

from .jobs import IMAGE, Account, hosts

GROUP = "/aws/sagemaker/TrainingJobs"
PRINTS = """
import os, sys
for epoch in range(3):
    print(f"{os.environ['SM_CURRENT_HOST']} epoch {epoch} loss={1 / (epoch + 1):.3f}", flush=True)
print("café", file=sys.stderr)
sys.stdout.write("no end of line")
"""


def algorithm(**metrics: str) -> dict[str, Any]:
    definitions = [{"Name": name, "Regex": regex} for name, regex in metrics.items()]
    return {"AlgorithmSpecification": {"TrainingImage": IMAGE, "TrainingInputMode": "File",
                                       "MetricDefinitions": definitions}}  # fmt: skip


def streams(account: Account, job: str) -> dict[str, list[str]]:
    """The lines of each stream of ``job``."""
    logs = account.server.client("logs")
    found = logs.describe_log_streams(logGroupName=GROUP, logStreamNamePrefix=f"{job}/", orderBy="LogStreamName")
    return {
        stream["logStreamName"]: [
            event["message"]
            for event in logs.get_log_events(
                logGroupName=GROUP, logStreamName=stream["logStreamName"], startFromHead=True
            )["events"]
        ]
        for stream in found["logStreams"]
    }


def test_each_host_has_a_stream_and_metrics_are_found(account: Account) -> None:
    done = account.run("prints", PRINTS, **hosts(2), **algorithm(loss="loss=([0-9.]+)", never="never=(x)"))
    assert done["TrainingJobStatus"] == "Completed", account.log("prints")
    found = streams(account, "prints")
    assert [name.rpartition("-")[0] for name in found] == ["prints/algo-1", "prints/algo-2"]
    for name, lines in found.items():
        host = name.split("/")[1].rpartition("-")[0]
        assert [line for line in lines if "epoch" in line] == [
            f"{host} epoch {epoch} loss={1 / (epoch + 1):.3f}" for epoch in range(3)
        ], "as the program printed them, without a prefix"
        assert "café" in lines and "no end of line" in lines
    described = account.sagemaker.describe_training_job(TrainingJobName="prints")
    (final,) = described["FinalMetricDataList"]
    assert (final["MetricName"], round(final["Value"], 3)) == ("loss", 0.333)
    now = datetime.now(timezone.utc)
    assert abs(final["Timestamp"] - now) < timedelta(hours=1)
    points = account.server.client("cloudwatch").get_metric_statistics(
        Namespace=GROUP, MetricName="loss", Dimensions=[{"Name": "TrainingJobName", "Value": "prints"}],
        StartTime=now - timedelta(hours=1), EndTime=now + timedelta(hours=1), Period=7200,
        Statistics=["Minimum", "SampleCount"],
    )["Datapoints"]  # fmt: skip
    assert sum(point["SampleCount"] for point in points) == 6
    assert min(point["Minimum"] for point in points) == 0.333


def test_an_expression_without_a_group_is_refused(account: Account) -> None:
    with pytest.raises(ClientError, match="MetricDefinition loss: 'loss=' has no group"):
        account.create("refused", PRINTS, **algorithm(loss="loss="))


def test_what_one_call_takes() -> None:
    events = [(number, "x" * 200_000) for number in range(20)]
    found = list(batches(events))
    assert [event for batch in found for event in batch] == events
    assert all(sum(len(text) + 26 for _, text in batch) <= 1 << 20 for batch in found)
    assert [len(batch) for batch in batches([(1, "x")] * 25_000)] == [10_000, 10_000, 5_000]
    ((_, cut),) = next(batches([(1, "é" * (1 << 18))]))
    assert len(cut.encode()) <= (1 << 18) - 26
