"""Processing jobs: their inputs and outputs, their configuration, how they end, and what is refused."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError

from .jobs import BUCKET, ROLE, Account

BASE = "import os\nbase = os.environ.get('SAGEMAKER_BASE_DIR', '/opt/ml')\n"
COUNTS = f"""{BASE}
import json, sys
config = json.load(open(base + "/config/processingjobconfig.json"))
hosts = json.load(open(base + "/config/resourceconfig.json"))
read = sorted(os.listdir(base + "/processing/input/data"))
print("read", *read, flush=True)
with open(f"{{base}}/processing/output/{{hosts['current_host']}}.json", "w") as file:
    said = [config["ProcessingJobName"], sys.argv[1:], os.environ["OWN"], sys.executable]
    json.dump([read, hosts["hosts"], *said], file)
open(base + "/output/message", "w").write("counted")
"""


def request(account: Account, name: str, script: str, *words: str, count: int = 1, **more: Any) -> dict[str, Any]:
    code = account.put(f"code/{name}/run.py", script.encode())
    place = "/opt/ml/processing/input/code"
    return {
        "ProcessingJobName": name,
        "RoleArn": ROLE,
        "ProcessingResources": {
            "ClusterConfig": {"InstanceCount": count, "InstanceType": "ml.m5.xlarge", "VolumeSizeInGB": 10}
        },
        "AppSpecification": {
            "ImageUri": "own", "ContainerEntrypoint": ["python3", f"{place}/run.py"],
            **({"ContainerArguments": list(words)} if words else {}),
        },
        "ProcessingInputs": [source("code", code, place)],
        **more,
    }  # fmt: skip


def source(name: str, uri: str, path: str, **more: str) -> dict[str, Any]:
    where = {"S3Uri": uri, "LocalPath": path, "S3DataType": "S3Prefix", "S3InputMode": "File", **more}
    return {"InputName": name, "S3Input": where}


def result(name: str, uri: str, path: str) -> dict[str, Any]:
    where = {"S3Uri": uri, "LocalPath": path, "S3UploadMode": "EndOfJob"}
    return {"OutputName": name, "S3Output": where}


def run(account: Account, asked: dict[str, Any]) -> dict[str, Any]:
    arn = account.sagemaker.create_processing_job(**asked)["ProcessingJobArn"]
    return account.server.wait(arn)


def test_hosts_get_their_share_and_leave_their_outputs(account: Account) -> None:
    for number in range(4):
        account.put(f"numbers/{number}", b"1")
    asked = request(account, "counts", COUNTS, "--of", "two", count=2, Environment={"OWN": "mine"})
    asked["ProcessingInputs"].append(
        source(
            "data", f"s3://{BUCKET}/numbers", "/opt/ml/processing/input/data", S3DataDistributionType="ShardedByS3Key"
        )
    )
    asked["ProcessingOutputConfig"] = {
        "Outputs": [result("out", f"s3://{BUCKET}/counted", "/opt/ml/processing/output")]
    }
    asked["Tags"] = [{"Key": "team", "Value": "data"}]
    done = run(account, asked)
    assert done["ProcessingJobStatus"] == "Completed", done
    assert done["ExitMessage"] == "countedcounted" and done["ProcessingStartTime"] <= done["ProcessingEndTime"]
    read = [json.loads(account.get(f"counted/algo-{host}.json")) for host in (1, 2)]
    assert sorted(name for each in read for name in each[0]) == ["0", "1", "2", "3"]
    for each in read:
        assert each[1:5] == [["algo-1", "algo-2"], "counts", ["--of", "two"], "mine"]
        assert Path(each[5]).parent == Path(sys.executable).parent, "the Python that runs the server"
    logs, group = account.server.client("logs"), "/aws/sagemaker/ProcessingJobs"
    streams = logs.describe_log_streams(logGroupName=group, logStreamNamePrefix="counts/")["logStreams"]
    assert sorted(each["logStreamName"].rpartition("-")[0] for each in streams) == ["counts/algo-1", "counts/algo-2"]
    assert account.sagemaker.list_tags(ResourceArn=done["ProcessingJobArn"])["Tags"] == asked["Tags"]


def test_a_job_that_fails_says_why_and_uploads_nothing(account: Account) -> None:
    script = f"{BASE}open(base + '/output/message', 'w').write('no rows left')\nraise SystemExit(3)"
    asked = request(account, "fails", script)
    asked["ProcessingOutputConfig"] = {"Outputs": [result("out", f"s3://{BUCKET}/failed", "/opt/ml/processing/output")]}
    done = run(account, asked)
    assert done["ProcessingJobStatus"] == "Failed"
    assert (done["FailureReason"], done["ExitMessage"]) == ("AlgorithmError: , exit code: 3", "no rows left")
    assert account.keys("failed") == []
    bad = run(account, request(account, "bad", f"{BASE}open(base + '/output/message', 'wb').write(b'\\xff')"))
    assert (bad["ProcessingJobStatus"], bad.get("ExitMessage")) == ("Failed", None)
    assert bad["FailureReason"].startswith("ClientError: ")
    asked = request(account, "nowhere", "pass")
    asked["ProcessingOutputConfig"] = {"Outputs": [result("out", "s3://no-such-bucket/x", "/opt/ml/processing/input")]}
    done = run(account, asked)
    assert done["ProcessingJobStatus"] == "Failed"
    assert done["FailureReason"].startswith("ClientError: Failed to upload data. upload of ")
    assert "there is no bucket 'no-such-bucket'" in done["FailureReason"]
    asked = request(account, "no-input", "pass")
    asked["ProcessingInputs"].append(source("data", f"s3://{BUCKET}/none/", "/opt/ml/processing/input/data"))
    done = run(account, asked)
    assert done["ProcessingJobStatus"] == "Failed"
    assert done["FailureReason"].startswith("ClientError: Failed to download data.")


@pytest.mark.lane("sdk")
def test_a_job_is_stopped_and_has_its_time(account: Account) -> None:
    waits = request(account, "waits", "import time; time.sleep(500)")
    arn = account.sagemaker.create_processing_job(**waits)["ProcessingJobArn"]
    account.server.wait(arn, "Training")
    account.sagemaker.stop_processing_job(ProcessingJobName="waits")
    assert account.server.wait(arn)["ProcessingJobStatus"] == "Stopped"
    late = request(account, "late", "import time; time.sleep(500)", StoppingCondition={"MaxRuntimeInSeconds": 1})
    assert run(account, late)["ProcessingJobStatus"] == "Stopped"
    with pytest.raises(ClientError, match="status Stopped"):
        account.sagemaker.stop_processing_job(ProcessingJobName="late")


def test_jobs_are_listed_apart_from_training_jobs(account: Account) -> None:
    assert run(account, request(account, "same-name", "pass"))["ProcessingJobStatus"] == "Completed"
    assert account.run("same-name", "pass")["TrainingJobStatus"] == "Completed"
    found = account.sagemaker.list_processing_jobs(NameContains="same", StatusEquals="Completed")
    assert [each["ProcessingJobName"] for each in found["ProcessingJobSummaries"]] == ["same-name"]
    with pytest.raises(ClientError, match="must be unique"):
        account.sagemaker.create_processing_job(**request(account, "same-name", "pass"))


@pytest.mark.parametrize(
    ("changed", "text"),
    [
        ({"AppSpecification": {"ImageUri": "own"}}, "ContainerEntrypoint"),
        ({"ProcessingInputs": [source("a", f"s3://{BUCKET}/a", "/tmp/a")]}, "must begin with /opt/ml/processing/"),
        ({"ProcessingInputs": [source("a", f"s3://{BUCKET}/a", "/opt/ml/processing/../../etc/a")]}, "must begin"),
        ({"ProcessingInputs": [source("a", f"s3://{BUCKET}/a", "/opt/ml/processing/a", S3InputMode="Pipe")]}, "File"),
        ({"ProcessingInputs": [{"InputName": "a", "DatasetDefinition": {"LocalPath": "/a"}}]}, "Athena"),
        ({"ProcessingOutputConfig": {"Outputs": [result("o", f"s3://{BUCKET}/o", "/var/out")]}}, "must begin with"),
    ],
)
def test_what_cannot_be_run_is_refused(account: Account, changed: dict[str, Any], text: str) -> None:
    with pytest.raises(ClientError, match=text):
        account.sagemaker.create_processing_job(**{**request(account, "refused", "pass"), **changed})
