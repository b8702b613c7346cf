"""Channels in all their forms, as the hosts find them; outputs without an archive; instances by their types."""

from __future__ import annotations

import gzip
import json
from typing import Any

import pytest
from botocore.exceptions import ClientError

from musterpoint.embedded.programs.pipes import record

from .jobs import BUCKET, Account, channel, hosts

LISTS = """
import json, os, pathlib
folder = pathlib.Path(os.environ["SM_CHANNEL_TRAIN"])
files = {str(path.relative_to(folder)): path.read_text() for path in sorted(folder.rglob("*")) if path.is_file()}
place = pathlib.Path(os.environ["SM_MODEL_DIR"], os.environ["SM_CURRENT_HOST"])
place.write_text(json.dumps([files, json.loads(os.environ["SM_INPUT_DATA_CONFIG"])["train"]]))
"""
READS = """
import os, pathlib
base = os.environ["SM_CHANNEL_TRAIN"]
for epoch in range(2):
    data = open(f"{base}_{epoch}", "rb").read()
    pathlib.Path(os.environ["SM_MODEL_DIR"], str(epoch)).write_bytes(data)
"""


@pytest.fixture(scope="session", autouse=True)
def data(account: Account) -> None:
    for number in range(4):
        account.put(f"data/{number}.txt", f"{number}\n".encode())
        account.put(f"packed/{number}.gz", gzip.compress(f"{number}\n".encode()))
    account.put("list.manifest", json.dumps([{"prefix": f"s3://{BUCKET}/data/"}, "1.txt", "3.txt"]).encode())
    lines = [{"source-ref": f"s3://{BUCKET}/data/{number}.txt", "label": number} for number in (2, 0)]
    account.put("augmented.manifest", "\n".join(map(json.dumps, lines)).encode())


def files_of(account: Account, name: str, wanted: dict[str, Any], count: int = 1) -> dict[str, Any]:
    done = account.run(name, LISTS, **hosts(count), InputDataConfig=[wanted])
    assert done["TrainingJobStatus"] == "Completed", account.log(name)
    left = account.archive(f"out/{name}/output/model.tar.gz")
    return {host: json.loads(text) for host, text in left.items()}


def test_shards_and_manifests(account: Account) -> None:
    sharded = channel("train", f"s3://{BUCKET}/data", S3DataDistributionType="ShardedByS3Key")
    found = files_of(account, "sharded", sharded, 2)
    parts = [set(found[host][0]) for host in ("algo-1", "algo-2")]
    assert len(parts[0]) == len(parts[1]) == 2 and not parts[0] & parts[1]
    assert found["algo-1"][1]["S3DistributionType"] == "ShardedByS3Key"
    listed = channel("train", f"s3://{BUCKET}/list.manifest", S3DataType="ManifestFile")
    assert files_of(account, "manifest", listed)["algo-1"][0] == {"1.txt": "1\n", "3.txt": "3\n"}


def test_only_the_groups_that_are_named_have_a_channel(account: Account) -> None:
    groups = [
        {"InstanceGroupName": "data", "InstanceType": "ml.m5.xlarge", "InstanceCount": 1},
        {"InstanceGroupName": "train", "InstanceType": "ml.c5.xlarge", "InstanceCount": 1},
    ]
    script = (
        "import os, pathlib\n"
        "seen = [os.environ['SM_CURRENT_INSTANCE_GROUP'], os.environ['SM_CHANNELS'], "
        "os.environ['SM_CURRENT_INSTANCE_TYPE']]\n"
        "pathlib.Path(os.environ['SM_MODEL_DIR'], os.environ['SM_CURRENT_HOST']).write_text(' '.join(seen))\n"
    )
    account.run(
        "groups", script, ResourceConfig={"InstanceGroups": groups, "VolumeSizeInGB": 10},
        InputDataConfig=[channel("train", f"s3://{BUCKET}/data", InstanceGroupNames=["data"])],
    )  # fmt: skip
    left = account.archive("out/groups/output/model.tar.gz")
    assert left["algo-1"] == b'data ["train"] ml.m5.xlarge' and left["algo-2"] == b"train [] ml.c5.xlarge"


@pytest.mark.lane("sdk")
@pytest.mark.parametrize(
    ("name", "source", "more", "expected"),
    [
        ("plain", "data", {}, b"0\n1\n2\n3\n"),
        ("gzip", "packed", {"CompressionType": "Gzip"}, b"0\n1\n2\n3\n"),
        ("recordio", "data", {"RecordWrapperType": "RecordIO"}, b"".join(record(b"%d\n" % n) for n in range(4))),
    ],
)
def test_pipes(account: Account, name: str, source: str, more: dict[str, str], expected: bytes) -> None:
    wanted = {**channel("train", f"s3://{BUCKET}/{source}"), "InputMode": "Pipe", **more}
    account.run(f"pipe-{name}", READS, InputDataConfig=[wanted])
    assert account.archive(f"out/pipe-{name}/output/model.tar.gz") == {"0": expected, "1": expected}


@pytest.mark.lane("sdk")
def test_an_augmented_manifest_is_a_pipe_of_attributes(account: Account) -> None:
    wanted = channel(
        "train", f"s3://{BUCKET}/augmented.manifest", S3DataType="AugmentedManifestFile",
        AttributeNames=["source-ref", "label"],
    )  # fmt: skip
    account.run("augmented", READS, InputDataConfig=[{**wanted, "InputMode": "Pipe", "RecordWrapperType": "RecordIO"}])
    expected = b"".join(map(record, (b"2\n", b"2", b"0\n", b"0")))
    assert account.archive("out/augmented/output/model.tar.gz")["0"] == expected
    with pytest.raises(ClientError, match="AugmentedManifestFile needs the input mode Pipe"):
        account.create("wrong", LISTS, InputDataConfig=[wanted])


@pytest.mark.lane("sdk")
def test_a_pipe_that_cannot_be_fed_ends_the_job(account: Account) -> None:
    account.put("torn.manifest", json.dumps({"source-ref": f"s3://{BUCKET}/nowhere"}).encode())
    wanted = channel(
        "train", f"s3://{BUCKET}/torn.manifest", S3DataType="AugmentedManifestFile", AttributeNames=["source-ref"]
    )
    done = account.run(
        "torn", READS, InputDataConfig=[{**wanted, "InputMode": "Pipe", "RecordWrapperType": "RecordIO"}]
    )
    assert done["TrainingJobStatus"] == "Failed"
    assert done["FailureReason"] == f"ClientError: Data download failed:there is no object s3://{BUCKET}/nowhere"


@pytest.mark.lane("sdk")
def test_a_pipe_whose_manifest_cannot_be_read_is_refused(account: Account) -> None:
    account.put("odd.manifest", b'{"other": 1}\n')
    wanted = channel(
        "train", f"s3://{BUCKET}/odd.manifest", S3DataType="AugmentedManifestFile", AttributeNames=["source-ref"]
    )
    done = account.run("odd", READS, InputDataConfig=[{**wanted, "InputMode": "Pipe"}])
    assert done["FailureReason"] == (
        f"ClientError: Data download failed:channel train: s3://{BUCKET}/odd.manifest: expected a JSON object in each "
        "line, with source-ref: KeyError('source-ref')"
    )


@pytest.mark.lane("sdk")
def test_a_prefix_is_the_beginning_of_names_and_a_manifest_has_an_order(account: Account) -> None:
    account.put("turned.manifest", json.dumps([{"prefix": f"s3://{BUCKET}/data/"}, "3.txt", "1.txt"]).encode())
    files = channel("train", f"s3://{BUCKET}/dat")
    assert files_of(account, "prefix", files)["algo-1"][0] == {f"data/{n}.txt": f"{n}\n" for n in range(4)}
    turned = channel("train", f"s3://{BUCKET}/turned.manifest", S3DataType="ManifestFile")
    account.run("turned", READS, InputDataConfig=[{**turned, "InputMode": "Pipe"}])
    assert account.archive("out/turned/output/model.tar.gz")["0"] == b"3\n1\n"


def test_outputs_without_an_archive(account: Account) -> None:
    script = "import os\nopen(os.environ['SM_MODEL_DIR'] + '/weights', 'w').write('w')\n"
    place = {"S3OutputPath": f"s3://{BUCKET}/out", "CompressionType": "NONE"}
    done = account.run("files", script, OutputDataConfig=place)
    assert done["ModelArtifacts"]["S3ModelArtifacts"] == f"s3://{BUCKET}/out/files/output/model/"
    assert account.keys("out/files/") == ["out/files/output/model/weights"]


def test_what_cant_be_run_is_refused_by_name(account: Account) -> None:
    def refused(text: str, **changes: object) -> None:
        with pytest.raises(ClientError, match=text):
            account.sagemaker.create_training_job(**{**account.request("refused"), **changes})

    built_in = "811284229777.dkr.ecr.us-east-1.amazonaws.com/blazingtext:1"
    refused("blazingtext is a built-in algorithm",
            AlgorithmSpecification={"TrainingImage": built_in, "TrainingInputMode": "File"})  # fmt: skip
    refused("MaxWaitTimeInSeconds must be specified", EnableManagedSpotTraining=True)
    system = {"FileSystemDataSource": {"FileSystemId": "fs-12345678901", "FileSystemAccessMode": "ro",
                                       "FileSystemType": "EFS", "DirectoryPath": "/"}}  # fmt: skip
    refused("the channel's source is FileSystemDataSource",
            InputDataConfig=[{"ChannelName": "train", "DataSource": system}])  # fmt: skip
    refused("LocalPath /elsewhere", CheckpointConfig={"S3Uri": f"s3://{BUCKET}/c", "LocalPath": "/elsewhere"})
