"""Training jobs: that they run, what is told of them, and what is refused."""

from __future__ import annotations

import io
import tarfile
import urllib.request
from datetime import datetime, timedelta, timezone
from typing import Any
from urllib.error import HTTPError

import pytest
from botocore.config import Config
from botocore.exceptions import ClientError

from .conftest import BUCKET, PROGRAM, Backend

pytestmark = pytest.mark.xdist_group("training-jobs")

GROUP = "/aws/sagemaker/TrainingJobs"
FAILS = """
import os, sys
open(os.environ.get("SAGEMAKER_BASE_DIR", "/opt/ml") + "/output/failure", "w").write("the loss is nan")
sys.exit(1)
"""
WAITS = "import time; print('waits', flush=True); time.sleep(300)"


def lines(backend: Backend, job: str) -> dict[str, list[str]]:
    """What stands in the job's log streams."""
    logs = backend.client("logs")
    streams = logs.describe_log_streams(logGroupName=GROUP, logStreamNamePrefix=f"{job}/")["logStreams"]
    found = {}
    for name in (stream["logStreamName"] for stream in streams):
        events = logs.get_log_events(logGroupName=GROUP, logStreamName=name, startFromHead=True)["events"]
        found[name] = [event["message"] for event in events]
    return found


def test_a_job_that_ends_with_0_is_completed(backend: Backend, done: dict[str, Any]) -> None:
    assert done["TrainingJobArn"].endswith(":training-job/two-hosts")
    assert (done["TrainingJobStatus"], done["SecondaryStatus"]) == ("Completed", "Completed")


def test_statuses_follow_each_other_in_time(backend: Backend, done: dict[str, Any]) -> None:
    passed = done["SecondaryStatusTransitions"]
    assert [each["Status"] for each in passed if each["Status"] != "Pending"] == [
        "Starting", "Downloading", "Training", "Uploading", "Completed",
    ]  # fmt: skip
    starts = [each["StartTime"] for each in passed]
    assert starts == sorted(starts)
    assert done["TrainingStartTime"] <= done["TrainingEndTime"] <= done["LastModifiedTime"]
    assert done["BillableTimeInSeconds"] >= 1 and done["TrainingTimeInSeconds"] >= 0


def test_what_the_program_prints_is_in_the_log_stream_of_its_host(backend: Backend, done: dict[str, Any]) -> None:
    found = {name.split("/")[1].rpartition("-")[0]: said for name, said in lines(backend, "two-hosts").items()}
    assert sorted(found) == ["algo-1", "algo-2"]
    for host, said in found.items():
        printed = [f"{host} loss={1 / (epoch + 1)};" for epoch in range(4)]
        assert {*printed, "café, and no end of the line"} <= set(said)


def test_what_hosts_leave_is_the_model_in_s3(backend: Backend, done: dict[str, Any]) -> None:
    assert done["ModelArtifacts"]["S3ModelArtifacts"] == f"s3://{BUCKET}/out/two-hosts/output/model.tar.gz"
    body = backend.s3.get_object(Bucket=BUCKET, Key="out/two-hosts/output/model.tar.gz")["Body"].read()
    with tarfile.open(fileobj=io.BytesIO(body)) as tar:
        assert sorted(name.removeprefix("./") for name in tar.getnames() if name.endswith(".txt")) == [
            "algo-1.txt", "algo-2.txt",
        ]  # fmt: skip


def test_metrics_are_those_that_were_printed(backend: Backend, done: dict[str, Any]) -> None:
    (final,) = done["FinalMetricDataList"]
    assert (final["MetricName"], final["Value"]) == ("loss", 0.25)
    now = datetime.now(timezone.utc)
    points = backend.client("cloudwatch").get_metric_statistics(
        Namespace=GROUP, MetricName="loss", Dimensions=[{"Name": "TrainingJobName", "Value": "two-hosts"}],
        StartTime=now - timedelta(hours=1), EndTime=now + timedelta(hours=1), Period=7200, Statistics=["SampleCount"],
    )["Datapoints"]  # fmt: skip
    assert sum(point["SampleCount"] for point in points) == 8


def test_a_name_can_be_used_once(backend: Backend, done: dict[str, Any]) -> None:
    with pytest.raises(ClientError) as caught:
        backend.create("two-hosts", PROGRAM)
    assert caught.value.response["Error"]["Code"] == "ResourceInUse"


def test_what_is_not_there_is_not_found(backend: Backend) -> None:
    with pytest.raises(ClientError) as caught:
        backend.describe("never-made")
    assert caught.value.response["Error"]["Code"] == "ValidationException"


def test_a_job_that_fails_says_why(backend: Backend) -> None:
    backend.create("fails", FAILS)
    found = backend.end("fails")
    assert found["TrainingJobStatus"] == "Failed"
    assert found["FailureReason"].startswith("AlgorithmError: ")
    assert "the loss is nan" in found["FailureReason"]


def test_a_job_can_be_stopped(backend: Backend) -> None:
    backend.create("stopped", WAITS)
    assert backend.describe("stopped")["TrainingJobStatus"] == "InProgress"
    backend.sagemaker.stop_training_job(TrainingJobName="stopped")
    assert backend.end("stopped")["TrainingJobStatus"] == "Stopped"
    with pytest.raises(ClientError) as caught:
        backend.sagemaker.stop_training_job(TrainingJobName="stopped")
    assert caught.value.response["Error"]["Code"] == "ValidationException"


def test_a_job_has_its_time(backend: Backend) -> None:
    backend.create("late", WAITS, StoppingCondition={"MaxRuntimeInSeconds": 1})
    found = backend.end("late")
    assert (found["TrainingJobStatus"], found["SecondaryStatus"]) == ("Stopped", "MaxRuntimeExceeded")


def test_lists_have_filters_and_pages(backend: Backend, done: dict[str, Any]) -> None:
    for name in ("listed-1", "listed-2", "listed-3"):
        backend.create(name, "pass")
        backend.end(name)
    pages = backend.sagemaker.get_paginator("list_training_jobs").paginate(
        NameContains="listed", StatusEquals="Completed", SortBy="Name", SortOrder="Ascending",
        PaginationConfig={"PageSize": 2},
    )  # fmt: skip
    assert [[each["TrainingJobName"] for each in page["TrainingJobSummaries"]] for page in pages] == [
        ["listed-1", "listed-2"], ["listed-3"],
    ]  # fmt: skip


def test_tags_come_and_go(backend: Backend, done: dict[str, Any]) -> None:
    arn = done["TrainingJobArn"]
    backend.sagemaker.add_tags(ResourceArn=arn, Tags=[{"Key": "team", "Value": "a"}, {"Key": "cost", "Value": "1"}])
    backend.sagemaker.delete_tags(ResourceArn=arn, TagKeys=["cost"])
    assert backend.sagemaker.list_tags(ResourceArn=arn)["Tags"] == [{"Key": "team", "Value": "a"}]


@pytest.mark.parametrize(
    "more",
    [
        {"ResourceConfig": {"InstanceType": "ml.none.large", "InstanceCount": 1, "VolumeSizeInGB": 1}},
        {"StoppingCondition": {"MaxRuntimeInSeconds": 0}},
        {"TrainingJobName": "under_score"},
    ],
)
def test_values_that_the_api_refuses(backend: Backend, more: dict[str, Any]) -> None:
    client = backend.client("sagemaker", config=Config(parameter_validation=False))
    kept, backend.sagemaker = backend.sagemaker, client
    try:
        with pytest.raises(ClientError) as caught:
            backend.create(more.pop("TrainingJobName", "refused"), "pass", **more)
    finally:
        backend.sagemaker = kept
    assert caught.value.response["Error"]["Code"] == "ValidationException"


def test_input_that_is_not_there_is_refused(backend: Backend) -> None:
    place = f"s3://{BUCKET}/nothing/here"
    source = {"S3DataType": "S3Prefix", "S3Uri": place, "S3DataDistributionType": "FullyReplicated"}
    with pytest.raises(ClientError, match="No S3 objects found"):
        backend.create(
            "no-input", "pass", InputDataConfig=[{"ChannelName": "train", "DataSource": {"S3DataSource": source}}]
        )


def test_a_call_without_a_signature_is_refused(backend: Backend) -> None:
    target = {"X-Amz-Target": "SageMaker.ListTrainingJobs", "Content-Type": "application/x-amz-json-1.1"}
    url = backend.sagemaker.meta.endpoint_url
    with pytest.raises(HTTPError) as caught:
        urllib.request.urlopen(urllib.request.Request(url, b"{}", target), timeout=60)
    caught.value.close()
    assert caught.value.code == 403


def test_operations_that_nobody_has_are_refused(backend: Backend) -> None:
    with pytest.raises(ClientError):
        backend.sagemaker.describe_labeling_job(LabelingJobName="labels")
