"""SDK v3 against the server: ModelTrainer and @remote, in one Python that loads the SDK once; its tuner is refused."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from .conftest import ROLE, Client

pytestmark = pytest.mark.xdist_group("sdk-v3")

BEGIN = f"""
import os
from sagemaker.core.helper.session_helper import Session
from sagemaker.core.parameter import ContinuousParameter
from sagemaker.core.remote_function import remote
from sagemaker.train import ModelTrainer
from sagemaker.train.configs import Compute, SourceCode
from sagemaker.train.tuner import HyperparameterTuner

def trainer(hosts):
    return ModelTrainer(
        training_image="123456789012.dkr.ecr.us-east-1.amazonaws.com/own:1", role="{ROLE}", base_job_name="trained",
        source_code=SourceCode(source_dir="src", entry_script="train.py"),
        compute=Compute(instance_type="ml.m5.xlarge", instance_count=hosts), hyperparameters={{"epochs": 2}},
    )

tuner = HyperparameterTuner(
    trainer(1), "loss", {{"lr": ContinuousParameter(0.1, 0.9)}}, [{{"Name": "loss", "Regex": "loss=([0-9.]+)"}}],
    objective_type="Minimize", max_jobs=2, max_parallel_jobs=2,
)

@remote(
    role="{ROLE}", instance_type="ml.m5.xlarge", image_uri="own:1",
    environment_variables={{"PATH": os.environ["SDK_PATH"]}},
)
def divided(number, by=2):
    return number / by
"""
TRAINS = """
alone = trainer(2)
alone.train(wait=True, logs=True)
job = alone._latest_training_job
print("DONE", job.training_job_status, job.model_artifacts.s3_model_artifacts)
"""
TUNES = """
try:
    tuner.tune(wait=False, job_name="tuned")
except Exception as error:
    print("REFUSED", error)
"""
REMOTE = """
print("DIVIDED", divided(42))
"""


@pytest.fixture(scope="module")
def said(client: Client, python: Callable[[str], Path]) -> Mapping[str, str]:
    return client.parts(python("sdk-v3"), begin=BEGIN, trains=TRAINS, tunes=TUNES, remote=REMOTE)


def test_a_model_trainer_trains_with_its_logs(client: Client, said: Mapping[str, str]) -> None:
    assert "FAILED" not in said["begin"], said["begin"]
    assert "DONE Completed s3://" in said["trains"], said["trains"]
    (stream, _) = client.streams("trained-")
    assert "algo-1 epoch 1 loss=0.2500" in stream, "what it shows on a terminal"


def test_a_tuner_is_refused_with_a_substitute(said: Mapping[str, str]) -> None:
    assert "REFUSED" in said["tunes"] and "a training job for each set" in said["tunes"], said["begin"] + said["tunes"]


def test_a_remote_function_is_a_job(said: Mapping[str, str]) -> None:
    assert "DIVIDED 21.0" in said["remote"], said["remote"]
