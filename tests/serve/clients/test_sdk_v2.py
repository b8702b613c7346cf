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


PIPELINE = f"""
import sagemaker
from sagemaker.processing import ProcessingOutput, ScriptProcessor
from sagemaker.pytorch import PyTorch
from sagemaker.tuner import ContinuousParameter, HyperparameterTuner
from sagemaker.workflow.condition_step import ConditionStep
from sagemaker.workflow.conditions import ConditionLessThanOrEqualTo
from sagemaker.workflow.fail_step import FailStep
from sagemaker.workflow.functions import Join, JsonGet
from sagemaker.workflow.parameters import ParameterFloat, ParameterInteger
from sagemaker.workflow.pipeline import Pipeline
from sagemaker.workflow.pipeline_context import PipelineSession
from sagemaker.workflow.properties import PropertyFile
from sagemaker.workflow.steps import ProcessingStep, TrainingStep, TuningStep

session = PipelineSession()
epochs, most = ParameterInteger("Epochs", default_value=1), ParameterFloat("Most", default_value=0.2)
settings = dict(role="{ROLE}", instance_count=1, instance_type="ml.m5.xlarge", sagemaker_session=session)
loss = [{{"Name": "loss", "Regex": "loss=([0-9.]+)"}}]

def estimator(**hyperparameters):
    return PyTorch(
        entry_point="train.py", source_dir="src", framework_version="2.5", py_version="py311",
        hyperparameters=hyperparameters, metric_definitions=loss, **settings,
    )

tuner = HyperparameterTuner(
    estimator(epochs=epochs), "loss", {{"lr": ContinuousParameter(0.3, 0.4)}}, loss, objective_type="Minimize",
    max_jobs=2, max_parallel_jobs=2,
)
tunes = TuningStep("Tune", step_args=tuner.fit())
trains = TrainingStep("Train", step_args=estimator(epochs=epochs).fit(), depends_on=[tunes])
report = PropertyFile(name="Report", output_name="out", path="report.json")
processor = ScriptProcessor(image_uri="own:1", command=["python3"], **settings)
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
    "Decide", if_steps=[TrainingStep("Again", step_args=estimator(epochs=2).fit())],
    else_steps=[FailStep("Refuse", error_message=Join(on=" ", values=["the loss is above", most]))],
    conditions=[ConditionLessThanOrEqualTo(
        left=JsonGet(step_name=evaluates.name, property_file=report, json_path="metrics.loss.value"), right=most,
    )],
)
steps = [tunes, trains, evaluates, decides]
pipeline = Pipeline("flow", parameters=[epochs, most], steps=steps, sagemaker_session=session)
pipeline.upsert("{ROLE}")
pipeline.upsert("{ROLE}")
execution = pipeline.start(parameters=dict(Epochs=3))
execution.wait(delay=1, max_attempts=300)
print("ENDED", execution.describe()["PipelineExecutionStatus"])
print("STEPS", *sorted(each["StepName"] + "=" + each["StepStatus"] for each in execution.list_steps()))
refused = pipeline.start(parameters=dict(Most=0.01), execution_display_name="refused")
try:
    refused.wait(delay=1, max_attempts=300)
except Exception as error:
    steps = {{each["StepName"]: each for each in refused.list_steps()}}
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


def test_a_pipeline_runs_with_its_session(client: Client, python: Callable[[str], Path]) -> None:
    (client.folder / "src" / "evaluate.py").write_text(EVALUATE)
    said = client.run(python("sdk-v2"), "-c", PIPELINE)
    assert "ENDED Succeeded" in said, said
    assert "STEPS Again=Succeeded Decide=Succeeded Evaluate=Succeeded Train=Succeeded Tune=Succeeded" in said, said
    assert "REFUSED WaiterError the loss is above 0.01" in said, said
