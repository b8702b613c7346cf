"""SDK v2 against the server: estimators, their logs, what is attached to, and metrics."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from .conftest import BUCKET, ROLE, Client

FIT = f"""
import sagemaker
from sagemaker.estimator import Estimator
from sagemaker.pytorch import PyTorch

session = sagemaker.Session()
estimator = PyTorch(
    entry_point="train.py", source_dir="src", role="{ROLE}", framework_version="2.5", py_version="py311",
    instance_count=2, instance_type="ml.m5.xlarge", hyperparameters={{"epochs": 3}}, sagemaker_session=session,
    metric_definitions=[{{"Name": "loss", "Regex": "loss=([0-9.]+)"}}],
)
data = session.upload_data("data", key_prefix="in")
estimator.fit({{"training": data}}, wait=True, logs="All", job_name="fitted")
print("MODEL", estimator.model_data)
attached = Estimator.attach("fitted", sagemaker_session=session)
print("ATTACHED", attached.latest_training_job.name, attached.hyperparameters()["epochs"])
print("METRICS", list(estimator.training_job_analytics.dataframe()["metric_name"]))
"""


def test_an_estimator_is_fitted_with_its_logs(client: Client, python: Callable[[str], Path]) -> None:
    said = client.run(python("sdk-v2"), "-c", FIT)
    for host in ("algo-1", "algo-2"):
        for epoch in range(3):
            assert f"{host} epoch {epoch} loss={0.5 / (epoch + 1):.4f}" in said, said
    assert "Training seconds: " in said
    assert f"MODEL s3://{BUCKET}/fitted/output/model.tar.gz" in said
    assert "ATTACHED fitted 3" in said
    assert "METRICS ['loss']" in said


TUNES = f"""
import sagemaker
from sagemaker.pytorch import PyTorch
from sagemaker.tuner import ContinuousParameter, HyperparameterTuner

estimator = PyTorch(
    entry_point="train.py", source_dir="src", role="{ROLE}", framework_version="2.5", py_version="py311",
    instance_count=1, instance_type="ml.m5.xlarge", hyperparameters={{"epochs": 2}},
)
tuner = HyperparameterTuner(
    estimator, "loss", {{"lr": ContinuousParameter(0.1, 0.9)}}, [{{"Name": "loss", "Regex": "loss=([0-9.]+)"}}],
    objective_type="Minimize", max_jobs=2, max_parallel_jobs=2,
)
tuner.fit(wait=True, job_name="tuned")
print("BEST", tuner.best_training_job(), len(tuner.analytics().dataframe()))
"""


def test_a_tuner_finds_the_best_job(client: Client, python: Callable[[str], Path]) -> None:
    said = client.run(python("sdk-v2"), "-c", TUNES)
    assert "BEST tuned-00" in said, said
    best = client.account.sagemaker.describe_hyper_parameter_tuning_job(HyperParameterTuningJobName="tuned")
    rates = [
        float(job["TunedHyperParameters"]["lr"])
        for job in client.account.sagemaker.list_training_jobs_for_hyper_parameter_tuning_job(
            HyperParameterTuningJobName="tuned"
        )["TrainingJobSummaries"]
    ]
    assert float(best["BestTrainingJob"]["TunedHyperParameters"]["lr"]) == min(rates)


PROCESSES = f"""
from sagemaker.processing import ProcessingInput, ProcessingOutput, ScriptProcessor
from sagemaker.sklearn.processing import SKLearnProcessor
import sagemaker

settings = dict(role="{ROLE}", instance_count=1, instance_type="ml.m5.xlarge")
session = sagemaker.Session()
data = session.upload_data("data", key_prefix="raw")
plain = ScriptProcessor(image_uri="own:1", command=["python3"], base_job_name="scripted", **settings)
plain.run(
    code="src/prepare.py", arguments=["--by", "2"], logs=True,
    inputs=[ProcessingInput(source=data, destination="/opt/ml/processing/input/data")],
    outputs=[ProcessingOutput(output_name="out", source="/opt/ml/processing/output")],
)
print("PLAIN", plain.latest_job.outputs[0].destination)
learned = SKLearnProcessor(framework_version="1.2-1", **settings)
learned.run(
    code="src/prepare.py", arguments=["--by", "3"], job_name="learned",
    inputs=[ProcessingInput(source=data, destination="/opt/ml/processing/input/data")],
    outputs=[ProcessingOutput(output_name="out", source="/opt/ml/processing/output", destination="s3://{BUCKET}/by-3")],
)
print("LEARNED", session.describe_processing_job("learned")["ProcessingJobStatus"])
"""
PREPARE = """
import argparse, os
parser = argparse.ArgumentParser()
parser.add_argument("--by", type=int)
given = parser.parse_args()
base = os.environ.get("SAGEMAKER_BASE_DIR", "/opt/ml") + "/processing"
numbers = [int(word) for word in open(base + "/input/data/numbers.txt").read().split()]
print("multiplied", *numbers, "by", given.by)
open(base + "/output/numbers.txt", "w").write(" ".join(str(number * given.by) for number in numbers))
"""


def test_processors_run_scripts_with_their_inputs_and_outputs(client: Client, python: Callable[[str], Path]) -> None:
    (client.folder / "src" / "prepare.py").write_text(PREPARE)
    said = client.run(python("sdk-v2"), "-c", PROCESSES)
    assert "PLAIN s3://" in said and "LEARNED Completed" in said, said
    assert "multiplied 1 2 3 by 2" in said, "the log comes to the terminal"
    assert client.account.s3.get_object(Bucket=BUCKET, Key="by-3/numbers.txt")["Body"].read() == b"3 6 9"
