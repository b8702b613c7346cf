"""AWS's command line, boto3 with its waiters, and Airflow's operator against the server."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from ..jobs import BUCKET
from .conftest import ROLE, TRAIN, Client

pytestmark = pytest.mark.xdist_group("tools")

AIRFLOW = f"""
from airflow.providers.amazon.aws.operators.sagemaker import SageMakerTrainingOperator

config = {{
    "TrainingJobName": "flown", "RoleArn": "{ROLE}",
    "AlgorithmSpecification": {{
        "TrainingImage": "own", "TrainingInputMode": "File",
        "ContainerEntrypoint": ["python3", "-c", "print('hello from a task')"],
    }},
    "OutputDataConfig": {{"S3OutputPath": "s3://{BUCKET}/out"}},
    "ResourceConfig": {{"InstanceType": "ml.m5.xlarge", "InstanceCount": 1, "VolumeSizeInGB": 1}},
    "StoppingCondition": {{"MaxRuntimeInSeconds": 600}},
}}
settings = dict(wait_for_completion=True, check_interval=1, print_log=True)
task = SageMakerTrainingOperator(task_id="train", config=config, **settings)
print("FLOWN", task.execute({{}})["Training"]["TrainingJobStatus"])
"""


def test_the_command_line_submits_waits_and_reads_the_log(client: Client, python: Callable[[str], Path]) -> None:
    aws = python("aws-cli").with_name("aws")
    request = client.account.request("typed", TRAIN)
    (client.folder / "job.json").write_text(json.dumps(request))
    said = client.run(aws, "sagemaker", "create-training-job", "--cli-input-json", "file://job.json")
    assert json.loads(said[said.index("{") :])["TrainingJobArn"].endswith(":training-job/typed")
    client.account.server.wait("typed")  # the command asks every two minutes
    client.run(aws, "sagemaker", "wait", "training-job-completed-or-stopped", "--training-job-name", "typed")
    words = ("sagemaker", "describe-training-job", "--training-job-name", "typed", "--output", "text", "--query")
    assert client.run(aws, *words, "TrainingJobStatus").strip() == "Completed"
    words = ("logs", "filter-log-events", "--log-group-name", "/aws/sagemaker/TrainingJobs", "--output", "text")
    said = client.run(aws, *words, "--log-stream-name-prefix", "typed/", "--query", "events[].message")
    assert "algo-1 epoch 0 loss=0.5000" in said


def test_airflow_runs_a_job_as_a_task(client: Client, python: Callable[[str], Path]) -> None:
    said = client.run(
        python("airflow"), "-c", AIRFLOW, AIRFLOW_HOME=str(client.folder / "airflow"), AIRFLOW_CONN_AWS_DEFAULT="aws://",
        AIRFLOW__CORE__UNIT_TEST_MODE="True",
    )  # fmt: skip
    assert "FLOWN Completed" in said, said
    assert client.account.sagemaker.describe_training_job(TrainingJobName="flown")["TrainingJobStatus"] == "Completed"
