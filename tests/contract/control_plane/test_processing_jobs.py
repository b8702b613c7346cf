"""Processing jobs: that they run, what they leave, and what is told of them."""

from __future__ import annotations

from typing import Any

import pytest
from botocore.exceptions import WaiterError

from .conftest import BUCKET, ROLE, Backend

pytestmark = pytest.mark.xdist_group("processing-jobs")

COPIES = (
    "import os; b = os.environ.get('SAGEMAKER_BASE_DIR', '/opt/ml') + '/processing/'; "
    "open(b + 'out/copy', 'w').write(open(b + 'in/number').read() * 2)"
)
FAILS = "raise SystemExit(7)"


def run(backend: Backend, name: str, program: str) -> dict[str, Any]:
    backend.s3.put_object(Bucket=BUCKET, Key="processed/number", Body=b"5")
    given = {"S3Uri": f"s3://{BUCKET}/processed", "LocalPath": "/opt/ml/processing/in", "S3DataType": "S3Prefix"}
    left = {"S3Uri": f"s3://{BUCKET}/{name}", "LocalPath": "/opt/ml/processing/out", "S3UploadMode": "EndOfJob"}
    backend.sagemaker.create_processing_job(
        ProcessingJobName=name,
        RoleArn=ROLE,
        AppSpecification={"ImageUri": backend.image, "ContainerEntrypoint": ["python3", "-c", program]},
        ProcessingInputs=[{"InputName": "in", "S3Input": {**given, "S3InputMode": "File"}}],
        ProcessingOutputConfig={"Outputs": [{"OutputName": "out", "S3Output": left}]},
        ProcessingResources={"ClusterConfig": {"InstanceCount": 1, "InstanceType": "ml.m5.large", "VolumeSizeInGB": 1}},
    )
    try:
        backend.sagemaker.get_waiter("processing_job_completed_or_stopped").wait(
            ProcessingJobName=name, WaiterConfig={"Delay": 1, "MaxAttempts": 300}
        )
    except WaiterError as error:  # the waiter's word for a job that failed
        if "terminal failure" not in str(error):
            raise
    found: dict[str, Any] = backend.sagemaker.describe_processing_job(ProcessingJobName=name)
    return found


def test_a_processing_job_leaves_its_outputs_in_s3(backend: Backend) -> None:
    assert run(backend, "copies", COPIES)["ProcessingJobStatus"] == "Completed"
    assert backend.s3.get_object(Bucket=BUCKET, Key="copies/copy")["Body"].read() == b"55"


def test_a_processing_job_that_fails_says_its_code(backend: Backend) -> None:
    found = run(backend, "exits", FAILS)
    assert found["ProcessingJobStatus"] == "Failed"
    assert found["FailureReason"].startswith("AlgorithmError: ") and "exit code: 7" in found["FailureReason"]
