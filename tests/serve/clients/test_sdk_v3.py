"""SDK v3's ModelTrainer against the server."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from .conftest import ROLE, Client

TRAINS = f"""
from sagemaker.train import ModelTrainer
from sagemaker.train.configs import Compute, SourceCode

trainer = ModelTrainer(
    training_image="123456789012.dkr.ecr.us-east-1.amazonaws.com/own:1", role="{ROLE}", base_job_name="trained",
    source_code=SourceCode(source_dir="src", entry_script="train.py"),
    compute=Compute(instance_type="ml.m5.xlarge", instance_count=2), hyperparameters={{"epochs": 2}},
)
trainer.train(wait=True, logs=True)
job = trainer._latest_training_job
print("DONE", job.training_job_status, job.model_artifacts.s3_model_artifacts)
"""


def test_a_model_trainer_trains_with_its_logs(client: Client, python: Callable[[str], Path]) -> None:
    said = client.run(python("sdk-v3"), "-c", TRAINS)
    assert "DONE Completed s3://" in said, said
    (stream, _) = client.streams("trained-")
    assert "algo-1 epoch 1 loss=0.2500" in stream, "what it shows on a terminal"
