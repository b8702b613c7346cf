"""Requests of training jobs, and the code that they run."""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import Mapping
from typing import Any

from musterpoint.serve import Server

BUCKET = "jobs"
ROLE = "arn:aws:iam::123456789012:role/training"
IMAGE = "763104351884.dkr.ecr.us-east-1.amazonaws.com/pytorch-training:2.5-cpu-py311"


class Account:
    """A server as its clients see it."""

    def __init__(self, server: Server, make_bucket: bool = True) -> None:
        self.server = server
        self.s3 = server.client("s3")
        self.sagemaker = server.client("sagemaker")
        if make_bucket:
            self.s3.create_bucket(Bucket=BUCKET)

    def code(self, name: str, **files: str) -> dict[str, str]:
        """The hyperparameters of a script-mode job with the given modules; the first is the program."""
        self.put(f"code/{name}/sourcedir.tar.gz", archive({f"{module}.py": text for module, text in files.items()}))
        place = f"s3://{BUCKET}/code/{name}/sourcedir.tar.gz"
        program = f"{next(iter(files))}.py"
        return {"sagemaker_program": json.dumps(program), "sagemaker_submit_directory": json.dumps(place)}

    def put(self, key: str, data: bytes) -> str:
        self.s3.put_object(Bucket=BUCKET, Key=key, Body=data)
        return f"s3://{BUCKET}/{key}"

    def get(self, key: str) -> bytes:
        body: bytes = self.s3.get_object(Bucket=BUCKET, Key=key)["Body"].read()
        return body

    def keys(self, prefix: str = "") -> list[str]:
        pages = self.s3.get_paginator("list_objects_v2").paginate(Bucket=BUCKET, Prefix=prefix)
        return [found["Key"] for page in pages for found in page.get("Contents", ())]

    def create(self, name: str, script: str = "", **more: Any) -> str:
        """Creates a job that runs ``script``; ``more`` is as the API names it."""
        request = self.request(name, script, **more)
        arn: str = self.sagemaker.create_training_job(**request)["TrainingJobArn"]
        return arn

    def request(self, name: str, script: str = "", **more: Any) -> dict[str, Any]:
        own = dict(self.code(name, train=script)) if script else {}
        return {
            "TrainingJobName": name,
            "RoleArn": ROLE,
            "AlgorithmSpecification": {"TrainingImage": IMAGE, "TrainingInputMode": "File"},
            "OutputDataConfig": {"S3OutputPath": f"s3://{BUCKET}/out"},
            "ResourceConfig": {"InstanceType": "ml.m5.xlarge", "InstanceCount": 1, "VolumeSizeInGB": 10},
            "StoppingCondition": {"MaxRuntimeInSeconds": 3600},
            **more,
            "HyperParameters": {**own, **more.get("HyperParameters", {})},
        }

    def run(self, name: str, script: str, **more: Any) -> dict[str, Any]:
        """Creates a job, and what it came to."""
        self.create(name, script, **more)
        return self.server.wait(name)

    def archive(self, key: str) -> dict[str, bytes]:
        """The files in an archive of the bucket."""
        with tarfile.open(fileobj=io.BytesIO(self.get(key)), mode="r:gz") as tar:
            members = [member for member in tar if member.isfile()]
            return {member.name: read(tar, member) for member in members}

    def until_it_says(self, name: str, text: str) -> None:
        self.server.wait_for_output(name, text)

    def log(self, name: str) -> str:
        """What the job's process and its hosts have written."""
        return (self.server.data / "jobs" / name / "log").read_text()


def entry(text: str) -> dict[str, Any]:
    """A job that runs a line of a shell, which needs no code of S3."""
    image = {"TrainingImage": "an-image", "TrainingInputMode": "File"}
    return {"AlgorithmSpecification": {**image, "ContainerEntrypoint": ["sh", "-c", text]}}


def hosts(count: int, kind: str = "ml.m5.xlarge") -> dict[str, Any]:
    """ResourceConfig of ``count`` hosts."""
    return {"ResourceConfig": {"InstanceType": kind, "InstanceCount": count, "VolumeSizeInGB": 10}}


def channel(name: str, uri: str, **more: Any) -> dict[str, Any]:
    """A channel; ``more`` is of its S3DataSource."""
    source = {"S3DataType": "S3Prefix", "S3Uri": uri, "S3DataDistributionType": "FullyReplicated", **more}
    return {"ChannelName": name, "DataSource": {"S3DataSource": source}}


def statuses(description: dict[str, object]) -> list[str]:
    """The secondary statuses that a job has passed, in order."""
    passed = description["SecondaryStatusTransitions"]
    assert isinstance(passed, list)
    return [each["Status"] for each in passed]


def read(tar: tarfile.TarFile, member: tarfile.TarInfo) -> bytes:
    file = tar.extractfile(member)
    assert file is not None
    with file:
        return file.read()


def archive(files: Mapping[str, str]) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as tar:
        for name, text in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(text.encode())
            tar.addfile(member, io.BytesIO(text.encode()))
    return packed.getvalue()
