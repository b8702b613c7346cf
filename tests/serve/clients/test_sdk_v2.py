"""SDK v2 against the server: estimators, their logs and metrics, tuners, processors, pipelines, remote functions.

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
from sagemaker.processing import ProcessingInput, ProcessingOutput, ScriptProcessor
from sagemaker.pytorch import PyTorch
from sagemaker.remote_function import RemoteExecutor, remote
from sagemaker.sklearn.processing import SKLearnProcessor
from sagemaker.tensorflow import TensorFlow
from sagemaker.tuner import ContinuousParameter, HyperbandStrategyConfig, HyperparameterTuner, StrategyConfig

session = sagemaker.Session()
loss = [{{"Name": "loss", "Regex": "loss=([0-9.]+)"}}]
script = dict(entry_point="train.py", source_dir="src", role="{ROLE}", instance_type="ml.m5.xlarge")
gpu = {{**script, "instance_type": "ml.g5.xlarge"}}

tuner = HyperparameterTuner(
    PyTorch(framework_version="2.5", py_version="py311", instance_count=1, hyperparameters={{"epochs": 2}}, **script),
    "loss", {{"lr": ContinuousParameter(0.1, 0.9)}}, loss, objective_type="Minimize", max_jobs=2, max_parallel_jobs=2,
    strategy="Hyperband", strategy_config=StrategyConfig(HyperbandStrategyConfig(max_resource=4, min_resource=1)),
)
tuner.fit(wait=False, job_name="tuned")

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
TUNED = """
tuner.wait()
print("BEST", tuner.best_training_job(), len(tuner.analytics().dataframe()))
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
PROCESSES = f"""
own = dict(role="{ROLE}", instance_count=1, instance_type="ml.m5.xlarge")
data = session.upload_data("data", key_prefix="raw")
learned = SKLearnProcessor(framework_version="1.2-1", **own)
learned.run(
    wait=False,
    code="src/prepare.py", arguments=["--by", "3"], job_name="learned",
    inputs=[ProcessingInput(source=data, destination="/opt/ml/processing/input/data")],
    outputs=[ProcessingOutput(output_name="out", source="/opt/ml/processing/output", destination="s3://{BUCKET}/by-3")],
)
plain = ScriptProcessor(image_uri="own:1", command=["python3"], base_job_name="scripted", **own)
plain.run(
    code="src/prepare.py", arguments=["--by", "2"], logs=True,
    inputs=[ProcessingInput(source=data, destination="/opt/ml/processing/input/data")],
    outputs=[ProcessingOutput(output_name="out", source="/opt/ml/processing/output")],
)
print("PLAIN", plain.latest_job.outputs[0].destination)
learned.latest_job.wait(logs=False)
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


PIPELINE = f"""
from sagemaker.workflow.condition_step import ConditionStep
from sagemaker.workflow.conditions import ConditionLessThanOrEqualTo
from sagemaker.workflow.fail_step import FailStep
from sagemaker.workflow.functions import Join, JsonGet
from sagemaker.workflow.parameters import ParameterFloat, ParameterInteger
from sagemaker.workflow.pipeline import Pipeline
from sagemaker.workflow.pipeline_context import PipelineSession
from sagemaker.workflow.properties import PropertyFile
from sagemaker.workflow.steps import ProcessingStep, TrainingStep, TuningStep

piped = PipelineSession()
epochs, most = ParameterInteger("Epochs", default_value=1), ParameterFloat("Most", default_value=0.2)
shared = dict(role="{ROLE}", instance_count=1, instance_type="ml.m5.xlarge", sagemaker_session=piped)
loss = [{{"Name": "loss", "Regex": "loss=([0-9.]+)"}}]

def fitted(**hyperparameters):
    return PyTorch(
        entry_point="train.py", source_dir="src", framework_version="2.5", py_version="py311",
        hyperparameters=hyperparameters, metric_definitions=loss, **shared,
    )

search = HyperparameterTuner(
    fitted(epochs=epochs), "loss", {{"lr": ContinuousParameter(0.3, 0.4)}}, loss, objective_type="Minimize",
    max_jobs=2, max_parallel_jobs=2,
)
tunes = TuningStep("Tune", step_args=search.fit())
trains = TrainingStep("Train", step_args=fitted(epochs=epochs).fit(), depends_on=[tunes])
report = PropertyFile(name="Report", output_name="out", path="report.json")
processor = ScriptProcessor(image_uri="own:1", command=["python3"], **shared)
evaluates = ProcessingStep(
    "Evaluate", property_files=[report],
    step_args=processor.run(
        code="src/evaluate.py", outputs=[ProcessingOutput(output_name="out", source="/opt/ml/processing/output")],
        arguments=[
            "--model", trains.properties.ModelArtifacts.S3ModelArtifacts,
            "--best", Join(on="/", values=["s3:/", tunes.properties.BestTrainingJob.TrainingJobName]),
        ],
    ),
)
decides = ConditionStep(
    "Decide", if_steps=[TrainingStep("Again", step_args=fitted(epochs=2).fit())],
    else_steps=[FailStep("Refuse", error_message=Join(on=" ", values=["the loss is above", most]))],
    conditions=[ConditionLessThanOrEqualTo(
        left=JsonGet(step_name=evaluates.name, property_file=report, json_path="metrics.loss.value"), right=most,
    )],
)
steps = [tunes, trains, evaluates, decides]
pipeline = Pipeline("flow", parameters=[epochs, most], steps=steps, sagemaker_session=piped)
pipeline.upsert("{ROLE}")
pipeline.upsert("{ROLE}")
execution = pipeline.start(parameters=dict(Epochs=3))
refused = pipeline.start(parameters=dict(Most=0.01), execution_display_name="refused")
"""
ENDED = """
execution.wait(delay=1, max_attempts=300)
print("ENDED", execution.describe()["PipelineExecutionStatus"])
print("STEPS", *sorted(each["StepName"] + "=" + each["StepStatus"] for each in execution.list_steps()))
try:
    refused.wait(delay=1, max_attempts=300)
except Exception as error:
    steps = {each["StepName"]: each for each in refused.list_steps()}
    print("REFUSED", type(error).__name__, steps["Refuse"]["FailureReason"])
"""
EVALUATE = """
import argparse, json, os

parser = argparse.ArgumentParser()
parser.add_argument("--model")
parser.add_argument("--best")
given = parser.parse_args()
assert given.model.startswith("s3://") and given.model.endswith("/output/model.tar.gz"), given
assert given.best.startswith("s3://") and "-001-" in given.best or "-002-" in given.best, given
base = os.environ.get("SAGEMAKER_BASE_DIR", "/opt/ml") + "/processing"
open(base + "/output/report.json", "w").write(json.dumps({"metrics": {"loss": {"value": 0.125}}}))
"""


@pytest.fixture(scope="module")
def said(client: Client, python: Callable[[str], Path]) -> Mapping[str, str]:
    (client.folder / "src" / "prepare.py").write_text(PREPARE)
    (client.folder / "src" / "evaluate.py").write_text(EVALUATE)
    return client.parts(
        python("sdk-v2"), begin=BEGIN, pipeline=PIPELINE, fit=FIT, tuned=TUNED, processes=PROCESSES,
        frameworks=FRAMEWORKS, remote=REMOTE, ended=ENDED,
    )  # fmt: skip


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


def test_a_tuner_finds_the_best_job(client: Client, said: Mapping[str, str]) -> None:
    assert "BEST tuned-00" in said["tuned"], said["tuned"]
    best = client.account.sagemaker.describe_hyper_parameter_tuning_job(HyperParameterTuningJobName="tuned")
    found = client.account.sagemaker.list_training_jobs_for_hyper_parameter_tuning_job(
        HyperParameterTuningJobName="tuned"
    )["TrainingJobSummaries"]
    rates = [float(job["TunedHyperParameters"]["lr"]) for job in found]
    assert float(best["BestTrainingJob"]["TunedHyperParameters"]["lr"]) == min(rates)


def test_processors_run_scripts_with_their_inputs_and_outputs(client: Client, said: Mapping[str, str]) -> None:
    assert "PLAIN s3://" in said["processes"] and "LEARNED Completed" in said["processes"], said["processes"]
    assert "multiplied 1 2 3 by 2" in said["processes"], "the log comes to the terminal"
    assert client.account.s3.get_object(Bucket=BUCKET, Key="by-3/numbers.txt")["Body"].read() == b"3 6 9"


def test_a_pipeline_runs_with_its_session(said: Mapping[str, str]) -> None:
    found = said["ended"]
    assert "FAILED" not in said["pipeline"], said["pipeline"]
    assert "ENDED Succeeded" in found, found
    assert "STEPS Again=Succeeded Decide=Succeeded Evaluate=Succeeded Train=Succeeded Tune=Succeeded" in found, found
    assert "REFUSED WaiterError the loss is above 0.01" in found, found


def test_a_remote_function_is_a_job(said: Mapping[str, str]) -> None:
    assert "DIVIDED 21.0" in said["remote"], said["begin"] + said["remote"]


def test_a_decorated_function_raises_what_its_job_did(said: Mapping[str, str]) -> None:
    assert "dividing 42" in said["remote"], said["remote"]
    assert "RAISED division by zero" in said["remote"], said["remote"]
