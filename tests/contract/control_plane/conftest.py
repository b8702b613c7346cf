"""SageMaker's training API, as anything that speaks it must answer: ours, or an endpoint that is given.

    scripts/test tests/contract/control_plane                                             ours
    pytest tests/contract/control_plane --endpoint-url http://127.0.0.1:4566 --backend-name other

A given endpoint is asked with the credentials of the environment, and must have the training image (--training-image),
which needs python3 only.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import boto3
import pytest
from botocore.exceptions import WaiterError

from musterpoint.serve import Server

from ...conftest import clean

BUCKET = "contract"
ROLE = "arn:aws:iam::123456789012:role/training"
LOADER = (
    "import json, os; base = os.environ.get('SAGEMAKER_BASE_DIR', '/opt/ml'); "
    "exec(json.load(open(base + '/input/config/hyperparameters.json'))['program'])"
)
"""An entry point's words have 256 characters at most, so the program itself is a hyperparameter."""
PROGRAM = """
import json, os
base = os.environ.get("SAGEMAKER_BASE_DIR", "/opt/ml")
host = json.load(open(base + "/input/config/resourceconfig.json"))["current_host"]
given = json.load(open(base + "/input/config/hyperparameters.json"))
for epoch in range(int(given["epochs"])):
    print(f"{host} loss={1 / (epoch + 1)};", flush=True)
open(f"{base}/model/{host}.txt", "w").write("a model")
print("caf\u00e9, and no end of the line", end="")
"""


class Backend:
    """An endpoint, as clients see it."""

    def __init__(self, name: str, image: str, **session: Any) -> None:
        self.name, self.image, self._session = name, image, session
        self.sagemaker, self.s3 = self.client("sagemaker"), self.client("s3")
        self.s3.create_bucket(Bucket=BUCKET)

    def client(self, service: str, **more: Any) -> Any:
        return boto3.client(service, **{**self._session, **more})

    def create(self, name: str, program: str, **more: Any) -> dict[str, Any]:
        """Creates a job that runs ``program``; ``more`` is as the API names it."""
        algorithm = {
            "TrainingImage": self.image,
            "TrainingInputMode": "File",
            "ContainerEntrypoint": ["python3", "-c", LOADER],
        }
        request = {
            "TrainingJobName": name,
            "RoleArn": ROLE,
            "AlgorithmSpecification": algorithm,
            "OutputDataConfig": {"S3OutputPath": f"s3://{BUCKET}/out"},
            "ResourceConfig": {"InstanceType": "ml.m5.large", "InstanceCount": 1, "VolumeSizeInGB": 1},
            "StoppingCondition": {"MaxRuntimeInSeconds": 600},
        }
        merged = {**request, **more}
        merged["HyperParameters"] = {"program": program, **more.get("HyperParameters", {})}
        merged["AlgorithmSpecification"] = {**algorithm, **more.get("AlgorithmSpecification", {})}
        answer: dict[str, Any] = self.sagemaker.create_training_job(**merged)
        return answer

    def end(self, name: str) -> dict[str, Any]:
        """What Describe says of the job once it is over, which must be within minutes."""
        waiter = self.sagemaker.get_waiter("training_job_completed_or_stopped")
        try:
            waiter.wait(TrainingJobName=name, WaiterConfig={"Delay": 1, "MaxAttempts": 300})
        except WaiterError as error:  # the waiter's word for a job that failed
            if "terminal failure" not in str(error):
                raise
        return self.describe(name)

    def describe(self, name: str) -> dict[str, Any]:
        found: dict[str, Any] = self.sagemaker.describe_training_job(TrainingJobName=name)
        return found


class Endpoints:
    """The backends of a run, each started when it is first asked for."""

    def __init__(self, config: pytest.Config, folder: Any) -> None:
        self._config, self._folder = config, folder

    def open(self, name: str) -> Iterator[Backend]:
        image = self._config.getoption("--training-image")
        given = self._config.getoption("--endpoint-url")
        own = {"region_name": "us-east-1", "aws_access_key_id": "contract", "aws_secret_access_key": "contract"}
        if given:
            yield Backend(name, image, endpoint_url=given, **({} if "AWS_ACCESS_KEY_ID" in os.environ else own))
        else:
            with Server(self._folder, max_jobs=3, environ=clean(os.environ)) as ours:
                keys = {"aws_access_key_id": ours.variables["AWS_ACCESS_KEY_ID"],
                        "aws_secret_access_key": ours.variables["AWS_SECRET_ACCESS_KEY"]}  # fmt: skip
                yield Backend(name, image, endpoint_url=ours.url, region_name="us-east-1", **keys)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "backend" in metafunc.fixturenames:
        given = metafunc.config.getoption("--endpoint-url")
        name = metafunc.config.getoption("--backend-name") if given else "muster"
        metafunc.parametrize("backend", [name], indirect=True, scope="module")


@pytest.fixture(scope="module")
def backend(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Backend]:
    yield from Endpoints(request.config, tmp_path_factory.mktemp("data")).open(request.param)


@pytest.fixture(scope="module")
def done(backend: Backend) -> dict[str, Any]:
    """A job of two hosts that has gone well: what Describe says of it."""
    backend.create(
        "two-hosts", PROGRAM, HyperParameters={"epochs": "4"},
        ResourceConfig={"InstanceType": "ml.m5.large", "InstanceCount": 2, "VolumeSizeInGB": 1},
        AlgorithmSpecification={"MetricDefinitions": [{"Name": "loss", "Regex": "loss=([0-9.]+);"}]},
    )  # fmt: skip
    return backend.end("two-hosts")
