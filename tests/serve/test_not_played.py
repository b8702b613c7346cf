"""Operations of SageMaker that aren't played: each is refused by name, and nothing is kept of it."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Callable
from typing import Any

import pytest
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.config import Config
from botocore.credentials import Credentials
from botocore.exceptions import ClientError

from musterpoint.serve.operations.table import INSTEAD
from musterpoint.serve.validation import service

from .jobs import BUCKET, ROLE, Account

CLUSTER = {"InstanceCount": 1, "InstanceType": "ml.m5.large", "VolumeSizeInGB": 1}
PROCESSING = {
    "ProcessingJobName": "a-name", "RoleArn": ROLE,
    "AppSpecification": {"ImageUri": "an-image", "ContainerEntrypoint": ["true"]},
    "ProcessingResources": {"ClusterConfig": CLUSTER},
}  # fmt: skip
PIPELINE = {
    "PipelineName": "a-name", "PipelineDefinition": '{"Version": "2020-12-01", "Steps": []}',
    "ClientRequestToken": "t" * 32, "RoleArn": ROLE,
}  # fmt: skip
TUNING = {
    "HyperParameterTuningJobName": "a-name",
    "HyperParameterTuningJobConfig": {
        "Strategy": "Random", "ResourceLimits": {"MaxNumberOfTrainingJobs": 1, "MaxParallelTrainingJobs": 1},
        "HyperParameterTuningJobObjective": {"Type": "Minimize", "MetricName": "loss"},
    },
    "TrainingJobDefinition": {
        "AlgorithmSpecification": {"TrainingImage": "an-image", "TrainingInputMode": "File"}, "RoleArn": ROLE,
        "OutputDataConfig": {"S3OutputPath": f"s3://{BUCKET}/out"}, "ResourceConfig": CLUSTER,
        "StoppingCondition": {"MaxRuntimeInSeconds": 60},
    },
}  # fmt: skip
OF_FAMILIES = sorted(name for name in service().operation_names if any(noun in name for noun in INSTEAD))


@pytest.mark.parametrize(
    ("call", "substitute"),
    [
        (lambda client: client.create_processing_job(**PROCESSING), "`docker run` starts the image"),
        (lambda client: client.create_pipeline(**PIPELINE), "LocalPipelineSession of SageMaker's SDK"),
        (lambda client: client.create_hyper_parameter_tuning_job(**TUNING), "a training job for each set"),
    ],
)
def test_a_job_of_another_kind_is_refused_with_a_substitute(
    account: Account, call: Callable[[Any], Any], substitute: str
) -> None:
    with pytest.raises(ClientError) as caught:
        call(account.sagemaker)
    error = caught.value.response["Error"]
    assert error["Code"] == "ValidationException" and substitute in error["Message"], error
    assert "muster serve plays training jobs" in error["Message"]


def test_the_families_are_whole() -> None:
    for name in ("StartPipelineExecution", "DescribeProcessingJob", "ListTrainingJobsForHyperParameterTuningJob"):
        assert name in OF_FAMILIES
    assert len(OF_FAMILIES) >= 29 and "CreateTrainingJob" not in OF_FAMILIES


@pytest.mark.parametrize("operation", OF_FAMILIES)
def test_every_operation_of_the_families_is_refused(account: Account, operation: str) -> None:
    """With no parameters at all: whatever they are, it is the operation that isn't here."""
    client = account.server.client("sagemaker", config=Config(parameter_validation=False))
    methods = {api: method for method, api in client.meta.method_to_api_mapping.items()}
    with pytest.raises(ClientError) as caught:
        getattr(client, methods[operation])()
    error = caught.value.response["Error"]
    assert error["Code"] == "ValidationException"
    assert error["Message"].startswith(f"{operation}: muster serve plays training jobs, and no ")


@pytest.mark.parametrize(
    ("scope", "target", "path"),
    [
        ("sagemaker", "SageMaker.CreateProcessingJob", "/"),
        ("SageMaker", "SageMaker.CreateProcessingJob", "/"),
        ("sagemaker", "Other.CreateProcessingJob", "/"),
        ("sagemaker", "SageMaker.ListModels", "/?Action=CreateProcessingJob"),
        ("sagemaker", "", "/?Action=CreateProcessingJob"),
    ],
)
def test_no_way_leads_past_the_server(account: Account, scope: str, target: str, path: str) -> None:
    """Whatever a request is signed for: moto would keep a record of a job that never ran."""
    variables = account.server.variables
    headers = {"X-Amz-Target": target, "Content-Type": "application/x-amz-json-1.1"}
    request = AWSRequest("POST", account.server.url + path, headers, json.dumps(PROCESSING).encode())
    keys = Credentials(variables["AWS_ACCESS_KEY_ID"], variables["AWS_SECRET_ACCESS_KEY"])
    SigV4Auth(keys, scope, "us-east-1").add_auth(request)
    wanted = urllib.request.Request(request.url, request.data, dict(request.headers.items()))
    with pytest.raises(urllib.error.HTTPError) as caught:
        urllib.request.urlopen(wanted)
    with caught.value as answer:
        assert answer.code in (400, 403)
        assert json.load(answer)["__type"] in ("ValidationException", "UnknownOperationException")
