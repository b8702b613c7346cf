"""A server that is killed, at any moment, and started again: nothing is lost, and nothing is done twice."""

from __future__ import annotations

import os
import select
import signal
import subprocess
from collections.abc import Mapping
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest
from botocore.exceptions import ClientError

from musterpoint.base.errors import UsageError
from musterpoint.serve import Server

from .jobs import BUCKET, Account, entry


def test_buckets_objects_roles_and_jobs_are_there_again(environ: Mapping[str, str], tmp_path: Path) -> None:
    server = Server(tmp_path / "data", environ=environ)
    account = Account(server)
    account.s3.put_object(Bucket=BUCKET, Key="a/b c.txt", Body=b"text", ContentType="text/plain", Metadata={"own": "1"})
    account.put("removed", b"1")
    account.put("removed-together", b"1")
    account.s3.delete_object(Bucket=BUCKET, Key="removed")
    account.s3.delete_objects(Bucket=BUCKET, Delete={"Objects": [{"Key": "removed-together"}]})
    upload = account.s3.create_multipart_upload(Bucket=BUCKET, Key="parts")["UploadId"]
    part = account.s3.upload_part(Bucket=BUCKET, Key="parts", UploadId=upload, PartNumber=1, Body=b"one")
    account.s3.complete_multipart_upload(
        Bucket=BUCKET, Key="parts", UploadId=upload,
        MultipartUpload={"Parts": [{"PartNumber": 1, "ETag": part["ETag"]}]},
    )  # fmt: skip
    iam = server.client("iam")
    iam.create_role(RoleName="training", AssumeRolePolicyDocument="{}")
    account.run("before", "", **entry("exit 0"))
    server.kill()
    with Server(tmp_path / "data", environ=environ) as again:
        assert again.variables["AWS_SECRET_ACCESS_KEY"] == server.variables["AWS_SECRET_ACCESS_KEY"]
        after = Account(again, make_bucket=False)
        assert set(after.keys()) == {"a/b c.txt", "parts", "out/before/output/model.tar.gz"}
        found = after.s3.get_object(Bucket=BUCKET, Key="a/b c.txt")
        assert found["Body"].read() == b"text" and found["Metadata"] == {"own": "1"}
        assert found["ContentType"] == "text/plain" and after.get("parts") == b"one"
        assert again.client("iam").get_role(RoleName="training")["Role"]["RoleName"] == "training"
        assert after.sagemaker.describe_training_job(TrainingJobName="before")["TrainingJobStatus"] == "Completed"
        with pytest.raises(ClientError, match="already exists"):
            after.create("before", "")


@pytest.mark.lane("sdk")
def test_logs_and_metrics_are_there_again(environ: Mapping[str, str], tmp_path: Path) -> None:
    group, job = "/aws/sagemaker/TrainingJobs", "before"

    def told(server: Server) -> tuple[list[str], float]:
        logs = server.client("logs")
        (stream,) = logs.describe_log_streams(logGroupName=group, logStreamNamePrefix=f"{job}/")["logStreams"]
        events = logs.get_log_events(logGroupName=group, logStreamName=stream["logStreamName"], startFromHead=True)
        now = datetime.now(timezone.utc)
        points = server.client("cloudwatch").get_metric_statistics(
            Namespace=group, MetricName="loss", Dimensions=[{"Name": "TrainingJobName", "Value": job}], Period=7200,
            StartTime=now - timedelta(hours=1), EndTime=now + timedelta(hours=1), Statistics=["Sum"],
        )["Datapoints"]  # fmt: skip
        return [event["message"] for event in events["events"]], sum(point["Sum"] for point in points)

    server = Server(tmp_path / "data", environ=environ)
    account = Account(server)
    algorithm = entry("for n in 1 2 3; do echo loss=$n; done")["AlgorithmSpecification"]
    algorithm["MetricDefinitions"] = [{"Name": "loss", "Regex": "loss=([0-9.]+)"}]
    done = account.run(job, "", AlgorithmSpecification=algorithm)
    assert done["TrainingJobStatus"] == "Completed", done
    logs = server.client("logs")
    logs.create_log_group(logGroupName="old")
    logs.create_log_stream(logGroupName="old", logStreamName="gone")
    logs.delete_log_stream(logGroupName="old", logStreamName="gone")
    before = told(server)
    assert {"loss=1", "loss=2", "loss=3"} <= set(before[0]) and before[1] == 6
    server.kill()
    for _ in range(2):
        again = Server(tmp_path / "data", environ=environ)
        assert told(again) == before
        assert again.client("logs").describe_log_streams(logGroupName="old")["logStreams"] == []
        again.kill()


def test_one_server_per_directory(environ: Mapping[str, str], tmp_path: Path) -> None:
    with Server(tmp_path, environ=environ), pytest.raises(UsageError, match="ended with code 64"):
        Server(tmp_path, environ=environ)


@pytest.mark.lane("sdk")
def test_everything_is_done_once_whenever_the_server_is_killed(root: Path, python: str) -> None:
    command = [python, root / "scripts" / "fuzz", "served", "--inputs", "4", "--seed", "1"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.lane("sdk")
def test_jobs_are_started_after_the_death_of_what_forks_them(environ: Mapping[str, str], tmp_path: Path) -> None:
    with Server(tmp_path / "data", environ=environ) as server:
        account = Account(server)
        account.run("before", "", **entry("exit 0"))
        words = ["pgrep", "--parent", str(server.pid), "--full", "fork_server"]
        forks = int(subprocess.run(words, capture_output=True, text=True, check=True).stdout)
        ended = os.pidfd_open(forks)
        os.kill(forks, signal.SIGKILL)
        select.select([ended], [], [])
        os.close(ended)
        assert account.run("after", "", **entry("exit 0"))["TrainingJobStatus"] == "Completed"


@pytest.mark.lane("sdk")
def test_a_job_that_is_to_be_stopped_is_stopped_by_the_next_server(environ: Mapping[str, str], tmp_path: Path) -> None:
    server = Server(tmp_path / "data", environ=environ)
    account = Account(server)
    account.create("waits", "", **entry("echo here; sleep 500"))
    account.until_it_says("waits", "here")
    server.kill()
    with Server(tmp_path / "data", environ=environ) as again:
        after = Account(again, make_bucket=False)
        assert after.sagemaker.describe_training_job(TrainingJobName="waits")["TrainingJobStatus"] == "InProgress"
        after.sagemaker.stop_training_job(TrainingJobName="waits")
        assert again.wait("waits")["TrainingJobStatus"] == "Stopped", after.log("waits")


def test_the_end_of_the_server_is_the_end_of_its_jobs(environ: Mapping[str, str], tmp_path: Path) -> None:
    with Server(tmp_path / "data", environ=environ) as server:
        account = Account(server)
        account.create("runs", "", **entry("echo here; sleep 500"))
        account.create("waits-its-turn", "", **entry("exit 0"))
        account.until_it_says("runs", "here")
    with Server(tmp_path / "data", environ=environ) as again:
        done = again.wait("runs")
        assert done["TrainingJobStatus"] == "Failed" and "muster serve was ended" in done["FailureReason"]
        assert again.wait("waits-its-turn")["TrainingJobStatus"] == "Completed"
