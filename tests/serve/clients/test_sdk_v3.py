"""SDK v3 against the server: ModelTrainer and @remote, in one Python that loads the SDK once; its tuner is refused."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from ...ports import free_port
from .conftest import ROLE, Client

pytestmark = pytest.mark.xdist_group("sdk-v3")

BEGIN = f"""
import os
from sagemaker.core.helper.session_helper import Session
from sagemaker.core.parameter import ContinuousParameter
from sagemaker.core.remote_function import remote
from sagemaker.core.shapes import InstanceGroup
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
GROUPS = f"""
from musterpoint.sagemaker import Muster

groups = [
    InstanceGroup(instance_group_name=name, instance_type="ml." + kind, instance_count=count)
    for name, kind, count in (("data", "c5.xlarge", 1), ("train", "m5.xlarge", 2))
]
mixed = ModelTrainer(
    training_image="123456789012.dkr.ecr.us-east-1.amazonaws.com/own:1", role="{ROLE}", base_job_name="mixed",
    source_code=SourceCode(source_dir="mixed", entry_script="train.py"), distributed=Muster(),
    compute=Compute(instance_groups=groups), environment={{"MUSTER_JOB_FILE": "job.toml"}},
    hyperparameters={{"epochs": 2}},
)
mixed.train(wait=True, logs=True)
print("DONE", mixed._latest_training_job.training_job_status)
"""
OF_GROUPS = {
    "job.toml": """
[[roles]]
name = "trainer"
group = "train"
launcher = "ranks"
after = "data"

[[roles]]
name = "data"
group = "data"
program = "data.py"
arguments = [PORT]
ready = "port PORT"
""",
    "train.py": """
import os, sys, urllib.request
with urllib.request.urlopen(f"http://{os.environ['MUSTER_ROLE_HOSTS_DATA']}:PORT/") as answer:
    print("rank", os.environ["RANK"], "of", os.environ["WORLD_SIZE"], sys.argv[1:], "got", answer.read(), flush=True)
""",
    "data.py": """
import os, sys
from http.server import BaseHTTPRequestHandler, HTTPServer

class Batches(BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"a batch")

HTTPServer((os.environ["MUSTER_ROLE_HOSTS_DATA"], int(sys.argv[1])), Batches).serve_forever()
""",
}
REMOTE = """
print("DIVIDED", divided(42))
"""


@pytest.fixture(scope="module")
def said(client: Client, python: Callable[[str], Path]) -> Mapping[str, str]:
    port = str(free_port())
    (client.folder / "mixed").mkdir()
    for name, text in OF_GROUPS.items():
        (client.folder / "mixed" / name).write_text(text.replace("PORT", port))
    return client.parts(python("sdk-v3"), begin=BEGIN, trains=TRAINS, groups=GROUPS, tunes=TUNES, remote=REMOTE)


def test_a_model_trainer_trains_with_its_logs(client: Client, said: Mapping[str, str]) -> None:
    assert "FAILED" not in said["begin"], said["begin"]
    assert "DONE Completed s3://" in said["trains"], said["trains"]
    (stream, _) = client.streams("trained-")
    assert "algo-1 epoch 1 loss=0.2500" in stream, "what it shows on a terminal"


def test_each_instance_group_has_its_role(client: Client, said: Mapping[str, str]) -> None:
    """The data server and the trainer are one job, whose file lies in its code."""
    assert "DONE Completed" in said["groups"], said["begin"] + said["groups"]
    data, first, second = client.streams("mixed-")
    assert "rank 0 of 2 ['--epochs', '2'] got b'a batch'" in first
    assert "rank 1 of 2" in second
    assert "trainer is through: data is told to end" in data


def test_a_tuner_is_refused_with_a_substitute(said: Mapping[str, str]) -> None:
    assert "REFUSED" in said["tunes"] and "a training job for each set" in said["tunes"], said["begin"] + said["tunes"]


def test_a_remote_function_is_a_job(said: Mapping[str, str]) -> None:
    assert "DIVIDED 21.0" in said["remote"], said["remote"]
