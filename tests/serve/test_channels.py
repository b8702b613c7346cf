"""Channels in all their forms, as the hosts find them; outputs without an archive; instances by their types."""

from __future__ import annotations

import json
from typing import Any

import pytest
from botocore.exceptions import ClientError

from musterpoint.serve.instance_types import gpus_of

from .jobs import BUCKET, Account, channel, hosts

LISTS = """
import json, os, pathlib
folder = pathlib.Path(os.environ["SM_CHANNEL_TRAIN"])
files = {str(path.relative_to(folder)): path.read_text() for path in sorted(folder.rglob("*")) if path.is_file()}
place = pathlib.Path(os.environ["SM_MODEL_DIR"], os.environ["SM_CURRENT_HOST"])
place.write_text(json.dumps([files, json.loads(os.environ["SM_INPUT_DATA_CONFIG"])["train"]]))
"""


@pytest.fixture(scope="session", autouse=True)
def data(account: Account) -> None:
    for number in range(4):
        account.put(f"data/{number}.txt", f"{number}\n".encode())
    account.put("list.manifest", json.dumps([{"prefix": f"s3://{BUCKET}/data/"}, "1.txt", "3.txt"]).encode())


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


def test_channels_name_groups_of_the_job_all_or_none(account: Account) -> None:
    groups = [{"InstanceGroupName": "data", "InstanceType": "ml.m5.xlarge", "InstanceCount": 1}]
    plain = channel("plain", f"s3://{BUCKET}/data")
    for text, wanted in (
        (
            "has other, which is no instance group",
            [channel("train", f"s3://{BUCKET}/data", InstanceGroupNames=["other"])],
        ),
        ("these have none: plain", [plain, channel("train", f"s3://{BUCKET}/data", InstanceGroupNames=["data"])]),
    ):
        with pytest.raises(ClientError, match=text):
            resources = {"InstanceGroups": groups, "VolumeSizeInGB": 10}
            account.create("refused", "pass", ResourceConfig=resources, InputDataConfig=wanted)


@pytest.mark.parametrize(
    ("kind", "gpus"),
    [("ml.p3.16xlarge", 8), ("ml.p2.xlarge", 1), ("ml.g5.48xlarge", 8), ("ml.m5.large", 0), ("ml.trn1.32xlarge", 0),
     ("local", 0), ("ml.p9.48xlarge", None), ("ml.p3.large", None)],
)  # fmt: skip
def test_gpus_of_instance_types(kind: str, gpus: int | None) -> None:
    assert gpus_of(kind) == gpus


@pytest.mark.lane("sdk")
def test_a_prefix_is_the_beginning_of_names(account: Account) -> None:
    files = channel("train", f"s3://{BUCKET}/dat")
    assert files_of(account, "prefix", files)["algo-1"][0] == {f"data/{n}.txt": f"{n}\n" for n in range(4)}
    for name in ("ASHA-1/a", "ASHA-10/b", "train-1", "train-2", "other"):
        account.put(f"exp/{name}", name.encode())

    def found(name: str, begin: str) -> list[str]:
        return [*files_of(account, name, channel("train", f"s3://{BUCKET}/exp/{begin}"))["algo-1"][0]]

    assert found("files-alone", "train-") == ["train-1", "train-2"]
    assert found("two-folders", "ASHA-1") == ["ASHA-1/a", "ASHA-10/b"]
    assert "exp/ASHA-10/b begins with s3://jobs/exp/ASHA-1, too, and comes with it" in account.log("two-folders")
    assert found("one-folder", "ASHA-1/") == ["a"]


@pytest.mark.parametrize("mode", ["Pipe", "FastFile"])
def test_what_would_be_read_meanwhile_comes_as_files(account: Account, mode: str) -> None:
    wanted = {**channel("train", f"s3://{BUCKET}/data"), "InputMode": mode}
    found = files_of(account, f"as-file-{mode.lower()}", wanted)["algo-1"]
    assert found[0] == {f"{n}.txt": f"{n}\n" for n in range(4)}
    assert found[1]["TrainingInputMode"] == "File"


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
    many = {"InstanceType": "ml.m5.xlarge", "InstanceCount": 100_000, "VolumeSizeInGB": 10}
    refused("ResourceLimitExceeded", ResourceConfig=many)
    refused("must begin with", CheckpointConfig={"S3Uri": f"s3://{BUCKET}/c", "LocalPath": "/elsewhere"})
