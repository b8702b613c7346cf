"""SDK v2 against the server: estimators, their logs and metrics, remote functions, and what is refused.

One Python runs all of it, since loading the SDK takes longer than most of what is shown. What takes long is begun first
and waited for at the end.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from .conftest import BUCKET, ROLE, Client

pytestmark = pytest.mark.xdist_group("sdk-v2")

BEGIN = f"""
import os
import sagemaker
from sagemaker.huggingface import HuggingFace
from sagemaker.processing import ScriptProcessor
from sagemaker.pytorch import PyTorch
from sagemaker.remote_function import RemoteExecutor, remote
from sagemaker.tensorflow import TensorFlow
from sagemaker.tuner import ContinuousParameter, HyperparameterTuner

session = sagemaker.Session()
loss = [{{"Name": "loss", "Regex": "loss=([0-9.]+)"}}]
script = dict(entry_point="train.py", source_dir="src", role="{ROLE}", instance_type="ml.m5.xlarge")
gpu = {{**script, "instance_type": "ml.g5.xlarge"}}

flow = TensorFlow(
    framework_version="2.19.0", py_version="py312", instance_count=2,
    distribution={{"multi_worker_mirrored_strategy": {{"enabled": True}}}}, **script,
)
flow.fit(wait=False, job_name="flow")
face = HuggingFace(
    transformers_version="4.56.2", pytorch_version="2.8.0", py_version="py312", instance_count=1,
    hyperparameters={{"epochs": 2}}, **gpu,
)
face.fit(wait=False, job_name="face")

def divided(number, by=2):
    print("dividing", number)
    return number / by

# a job's Python needs the SDK, too
function = dict(
    role="{ROLE}", instance_type="ml.m5.xlarge", image_uri="own:1",
    environment_variables={{"PATH": os.environ["SDK_PATH"]}},
)
executor = RemoteExecutor(**function)
future = executor.submit(divided, 42)
"""
FIT = """
from sagemaker.estimator import Estimator

estimator = PyTorch(
    framework_version="2.5", py_version="py311", instance_count=2, hyperparameters={"epochs": 3},
    sagemaker_session=session, metric_definitions=loss, **script,
)
data = session.upload_data("data", key_prefix="in")
estimator.fit({"training": data}, wait=True, logs="All", job_name="fitted")
print("MODEL", estimator.model_data)
attached = Estimator.attach("fitted", sagemaker_session=session)
print("ATTACHED", attached.latest_training_job.name, attached.hyperparameters()["epochs"])
print("METRICS", list(estimator.training_job_analytics.dataframe()["metric_name"]))
"""
FRAMEWORKS = """
for estimator in (flow, face):
    session.logs_for_job(estimator.latest_training_job.name, wait=True)
    print("ENDED", estimator.model_data)
"""
REMOTE = """
try:
    remote(**function)(divided)(42, by=0)
except ZeroDivisionError as error:
    print("RAISED", error)
print("DIVIDED", future.result())
executor.shutdown()
"""
REFUSED = f"""
from sagemaker.workflow.pipeline import Pipeline
from sagemaker.workflow.pipeline_context import PipelineSession
from sagemaker.workflow.steps import TrainingStep

tuner = HyperparameterTuner(
    PyTorch(framework_version="2.5", py_version="py311", instance_count=1, **script), "loss",
    {{"lr": ContinuousParameter(0.1, 0.9)}}, loss, objective_type="Minimize", max_jobs=2, max_parallel_jobs=2,
)
own = dict(role="{ROLE}", instance_count=1, instance_type="ml.m5.xlarge")
processor = ScriptProcessor(image_uri="own:1", command=["python3"], **own)
pipeline = Pipeline("flow", steps=[TrainingStep("Train", step_args=PyTorch(
    entry_point="train.py", source_dir="src", framework_version="2.5", py_version="py311",
    sagemaker_session=PipelineSession(), **own,
).fit())])
for action in (tuner.fit, lambda: processor.run(code="src/train.py"), lambda: pipeline.create("{ROLE}")):
    try:
        action()
        print("DONE")
    except Exception as error:
        print("REFUSED", error)
"""


@pytest.fixture(scope="module")
def said(client: Client, python: Callable[[str], Path]) -> Mapping[str, str]:
    return client.parts(python("sdk-v2"), begin=BEGIN, fit=FIT, frameworks=FRAMEWORKS, remote=REMOTE, refused=REFUSED)


def test_an_estimator_is_fitted_with_its_logs(said: Mapping[str, str]) -> None:
    assert "FAILED" not in said["begin"], said["begin"]
    for host in ("algo-1", "algo-2"):
        for epoch in range(3):
            assert f"{host} epoch {epoch} loss={0.5 / (epoch + 1):.4f}" in said["fit"], said["fit"]
    assert "Training seconds: " in said["fit"]
    assert f"MODEL s3://{BUCKET}/fitted/output/model.tar.gz" in said["fit"]
    assert "ATTACHED fitted 3" in said["fit"]
    assert "METRICS ['loss']" in said["fit"]


def test_estimators_of_other_frameworks(said: Mapping[str, str]) -> None:
    assert "cluster of 2" in said["frameworks"], said["begin"] + said["frameworks"]
    assert "algo-1 epoch 1 loss=0.2500" in said["frameworks"]
    for name in ("flow", "face"):
        assert f"ENDED s3://{BUCKET}/{name}/output/model.tar.gz" in said["frameworks"], said["frameworks"]


def test_jobs_of_other_kinds_are_refused_with_a_substitute(said: Mapping[str, str]) -> None:
    found = said["refused"]
    assert "DONE" not in found and found.count("REFUSED") == 3, said["begin"] + found
    for substitute in ("a training job for each set", "`docker run` starts the image", "LocalPipelineSession"):
        assert substitute in found, found


def test_a_remote_function_is_a_job(said: Mapping[str, str]) -> None:
    assert "DIVIDED 21.0" in said["remote"], said["begin"] + said["remote"]


def test_a_decorated_function_raises_what_its_job_did(said: Mapping[str, str]) -> None:
    assert "dividing 42" in said["remote"], said["remote"]
    assert "RAISED division by zero" in said["remote"], said["remote"]
