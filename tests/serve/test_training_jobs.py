"""CreateTrainingJob to its end: what the hosts see, what is left in S3, and what Describe tells of it."""

from __future__ import annotations

import json
import urllib.request

import pytest
from botocore.exceptions import ClientError

from .jobs import BUCKET, IMAGE, Account, channel, hosts, statuses

SHOWS = """
import json, os, pathlib
seen = {name: os.environ[name] for name in ("SM_CURRENT_HOST", "SM_HOSTS", "SM_HPS", "SM_CURRENT_INSTANCE_TYPE",
                                            "TRAINING_JOB_NAME", "TRAINING_JOB_ARN", "OWN", "AWS_REGION")}
folder = pathlib.Path(os.environ["SM_CHANNEL_TRAIN"])
seen["files"] = {str(path.relative_to(folder)): path.read_text() for path in folder.rglob("*") if path.is_file()}
seen["channels"] = os.listdir(folder.parent)
host = os.environ["SM_CURRENT_HOST"]
pathlib.Path(os.environ["SM_MODEL_DIR"], f"{host}.json").write_text(json.dumps(seen))
pathlib.Path(os.environ["SM_OUTPUT_DATA_DIR"], f"{host}.txt").write_text("an output")
"""


def test_two_hosts_see_what_was_asked_for_and_leave_it_in_s3(account: Account) -> None:
    account.put("of-two-hosts/a.txt", b"a")
    account.put("of-two-hosts/sub/b.txt", b"b")
    done = account.run(
        "shows", SHOWS, **hosts(2), Environment={"OWN": "mine"}, HyperParameters={"epochs": "3"},
        InputDataConfig=[{**channel("train", f"s3://{BUCKET}/of-two-hosts/"), "ShuffleConfig": {"Seed": 1}}],
        ExperimentConfig={"ExperimentName": "e"},
    )  # fmt: skip
    assert done["TrainingJobStatus"] == "Completed", account.log("shows")
    said = [line.split()[2] for line in account.log("shows").splitlines() if line.startswith("[muster serve]")]
    assert said[1:] == ["InputDataConfig.ShuffleConfig:", "ExperimentConfig:"] and said[0].startswith(IMAGE)
    assert statuses(done) == ["Starting", "Downloading", "Training", "Uploading", "Completed"]
    left = account.archive("out/shows/output/model.tar.gz")
    assert sorted(left) == ["algo-1.json", "algo-2.json"]
    for host in ("algo-1", "algo-2"):
        seen = json.loads(left[f"{host}.json"])
        assert seen["files"] == {"a.txt": "a", "sub/b.txt": "b"} and seen["channels"] == ["train"]
        assert seen["SM_CURRENT_HOST"] == host and seen["OWN"] == "mine" and seen["AWS_REGION"] == "us-east-1"
        assert json.loads(seen["SM_HOSTS"]) == ["algo-1", "algo-2"] and json.loads(seen["SM_HPS"])["epochs"] == 3
        assert seen["TRAINING_JOB_ARN"] == done["TrainingJobArn"] and seen["TRAINING_JOB_NAME"] == "shows"
        assert seen["SM_CURRENT_INSTANCE_TYPE"] == "ml.m5.xlarge"
    assert sorted(account.archive("out/shows/output/output.tar.gz")) == ["algo-1.txt", "algo-2.txt"]
    described = account.sagemaker.describe_training_job(TrainingJobName="shows")
    assert described["ModelArtifacts"]["S3ModelArtifacts"] == f"s3://{BUCKET}/out/shows/output/model.tar.gz"
    assert described["CreationTime"] <= described["TrainingStartTime"] <= described["TrainingEndTime"]


def test_what_only_this_server_refuses(account: Account) -> None:
    """Beside what tests/contract/control_plane asks of any."""
    for said, more in (
        ("does not exist", {"OutputDataConfig": {"S3OutputPath": "s3://no-such-bucket/out"}}),
        ("CheckpointConfig.S3Uri", {"CheckpointConfig": {"S3Uri": "s3://no-such-bucket/kept"}}),
        ("Invalid S3 URI", {"CheckpointConfig": {"S3Uri": f"https://{BUCKET}/kept"}}),
        ("value of A has a NUL", {"Environment": {"A": "a\0"}}),
    ):
        with pytest.raises(ClientError, match=said):
            account.create("wrong", "pass", **more)
    with pytest.raises(ClientError, match="muster serve doesn't have this operation"):
        account.sagemaker.list_auto_ml_jobs()
    with pytest.raises(ClientError, match="Invalid NextToken"):
        account.sagemaker.list_training_jobs(NextToken="WyJ4IiwgMV0=")  # ["x", 1]


def test_calls_need_the_servers_own_signature(account: Account) -> None:
    for wrong, code in (
        ({"aws_secret_access_key": "wrong"}, "InvalidSignatureException"),
        ({"aws_access_key_id": "wrong"}, "UnrecognizedClientException"),
        ({"region_name": "eu-west-1"}, "InvalidSignatureException"),
    ):
        with pytest.raises(ClientError) as caught:
            account.server.client("sagemaker", **wrong).list_training_jobs()
        assert caught.value.response["Error"]["Code"] == code
    with pytest.raises(ClientError) as caught:
        account.server.client("s3", aws_secret_access_key="wrong").list_buckets()
    assert caught.value.response["Error"]["Code"] == "SignatureDoesNotMatch"
    role = account.server.client("sts").assume_role(RoleArn="arn:aws:iam::123456789012:role/r", RoleSessionName="own")
    given = role["Credentials"]
    assumed = account.server.client(
        "sagemaker", aws_access_key_id=given["AccessKeyId"], aws_secret_access_key=given["SecretAccessKey"],
        aws_session_token=given["SessionToken"],
    )  # fmt: skip
    assert "TrainingJobSummaries" in assumed.list_training_jobs()


def test_keys_of_any_form_are_signed(account: Account) -> None:
    for key in ("plain", "with space/and+plus", "a=b&c?d#e", "ü/ß.txt", "~tilde*star'quote"):
        account.put(f"odd/{key}", key.encode())
        assert account.get(f"odd/{key}").decode() == key
    url = account.s3.generate_presigned_url("get_object", Params={"Bucket": BUCKET, "Key": "odd/plain"})
    with urllib.request.urlopen(url) as answer:
        assert answer.read() == b"plain"
