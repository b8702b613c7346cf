"""``muster serve`` killed at random moments, while it makes jobs, and while jobs, tuning jobs and pipelines go on.

What must hold: whatever a client was told to be there comes to its end, well, and everything that a job does is done
once.
"""

from __future__ import annotations

import hashlib
import io
import json
import random
import tarfile
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from fuzzers.findings import MOST_WRONG, Findings
from musterpoint.serve import Server

BUCKET, ROLE = "jobs", "arn:aws:iam::123456789012:role/training"
KILLS_OF_ONE, THINGS_OF_ONE = 8, 2
"""Kills of one directory's servers, and what is made between two of them."""
TUNED, PARALLEL = 3, 2
LONGEST = 1.2
"""Seconds until a kill at most; by then most of what was made runs, or is over."""
PROGRAM = """
import os
with open({ran!r}, "a") as file:
    file.write(os.environ["TRAINING_JOB_NAME"] + "\\n")
print("loss=1;")
"""
READER = """
import hashlib, os
with open(os.environ["SM_CHANNEL_WHOLE"] + "/big", "rb") as file:
    assert hashlib.sha256(file.read()).hexdigest() == {digest!r}
with open(os.environ["SM_MODEL_DIR"] + "/weights", "wb") as file:
    file.write(os.urandom(1 << 20))
"""
BIG = 4 << 20
"""Bytes of an object that takes a moment to come."""
DONE = {"Completed", "Succeeded"}


def fuzz(seed: int, inputs: int) -> Findings:
    """``inputs`` kills."""
    draw, wrong, tried = random.Random(seed), list[str](), 0
    while tried < inputs and len(wrong) < MOST_WRONG:
        kills = min(KILLS_OF_ONE, inputs - tried)
        with tempfile.TemporaryDirectory(prefix="muster-kills-") as folder:
            number = draw.randrange(10**6)
            found = Account(Path(folder), random.Random(number)).live(kills)
        tried += kills
        wrong += [f"seed {number}: {text}" for text in found]
    return Findings(tried, tuple(wrong))


class Account:
    """What is made in one directory, and the servers that come one after another there."""

    def __init__(self, folder: Path, draw: random.Random) -> None:
        self._folder, self._draw = folder, draw
        self._ran = folder / "ran"
        self._ran.touch()
        self._arns: dict[str, str] = {}
        self._pipelines: set[str] = set()
        self._todo: list[Callable[[], None]] = []

    def live(self, kills: int) -> list[str]:
        """So many servers that are killed, and a last one; what didn't hold."""
        self._begin()
        self._bucket()
        for turn in range(kills):
            self._todo += [self._thing(f"{turn}-{each}") for each in range(THINGS_OF_ONE)]
            asking = threading.Thread(target=self._ask)
            asking.start()
            time.sleep(self._draw.choice((0.1, 0.5, 1.0)) * LONGEST * self._draw.random())  # the moment is drawn
            self._server.kill()
            asking.join()
            self._begin()
        with self._server:
            self._ask()
            return [*self._not_done(), *self._not_once()]

    def _begin(self) -> None:
        self._server = Server(self._folder / "data", max_jobs=3)
        quick = Config(retries={"total_max_attempts": 1})
        self._sagemaker = self._server.client("sagemaker", config=quick)

    def _bucket(self) -> None:
        s3 = self._server.client("s3")
        s3.create_bucket(Bucket=BUCKET)
        big = self._draw.randbytes(BIG)
        s3.put_object(Bucket=BUCKET, Key="data/big", Body=big)
        program = PROGRAM.format(ran=str(self._ran))
        reader = READER.format(digest=hashlib.sha256(big).hexdigest()) + program
        packed = io.BytesIO()
        with tarfile.open(fileobj=packed, mode="w:gz") as tar:
            for name, text in (("train.py", program), ("read.py", reader)):
                member = tarfile.TarInfo(name)
                member.size = len(text.encode())
                tar.addfile(member, io.BytesIO(text.encode()))
        s3.put_object(Bucket=BUCKET, Key="sourcedir.tar.gz", Body=packed.getvalue())

    def _code(self, program: str) -> dict[str, str]:
        given = {"sagemaker_program": program, "sagemaker_submit_directory": f"s3://{BUCKET}/sourcedir.tar.gz"}
        return {key: json.dumps(value) for key, value in given.items()}

    def _ask(self) -> None:
        """Makes what is still to be made, in its order, until the server doesn't answer."""
        while self._todo:
            try:
                self._todo[0]()
            except BotoCoreError:
                return
            except ClientError as error:
                if "already exists" not in str(error):  # made by a call whose answer was lost
                    raise
            del self._todo[0]

    def _thing(self, name: str) -> Callable[[], None]:
        """What makes a thing of a kind that is drawn, and notes where it is."""
        make = self._draw.choice((self._train, self._read, self._process, self._tune, self._flow))
        return lambda: make(f"{make.__name__.strip('_')}-{name}")

    def _note(self, name: str, kind: str) -> None:
        self._arns[name] = f"arn:aws:sagemaker:us-east-1:123456789012:{kind}/{name}"

    def _job(self, name: str) -> dict[str, Any]:
        shell = ["sh", "-c", f'echo "$TRAINING_JOB_NAME" >> {self._ran}']
        image = {"TrainingImage": "any", "TrainingInputMode": "File", "ContainerEntrypoint": shell}
        return {"TrainingJobName": name, "AlgorithmSpecification": image, **self._plain()}

    def _plain(self) -> dict[str, Any]:
        return {
            "RoleArn": ROLE,
            "OutputDataConfig": {"S3OutputPath": f"s3://{BUCKET}/out"},
            "ResourceConfig": {"InstanceType": "ml.m5.large", "InstanceCount": 1, "VolumeSizeInGB": 1},
            "StoppingCondition": {"MaxRuntimeInSeconds": 600},
        }

    def _work(self, name: str) -> dict[str, Any]:
        cluster = {"InstanceType": "ml.m5.large", "InstanceCount": 1, "VolumeSizeInGB": 1}
        shell = ["sh", "-c", f"echo {name} >> {self._ran}"]
        return {
            "ProcessingJobName": name,
            "RoleArn": ROLE,
            "ProcessingResources": {"ClusterConfig": cluster},
            "AppSpecification": {"ImageUri": "any", "ContainerEntrypoint": shell},
        }

    def _train(self, name: str) -> None:
        self._note(name, "training-job")
        self._sagemaker.create_training_job(**self._job(name))

    def _read(self, name: str) -> None:
        source = {"S3DataType": "S3Prefix", "S3Uri": f"s3://{BUCKET}/data", "S3DataDistributionType": "FullyReplicated"}
        channels = [{"ChannelName": "whole", "DataSource": {"S3DataSource": source}}]
        image = {"TrainingImage": "any", "TrainingInputMode": "File"}
        self._note(name, "training-job")
        self._sagemaker.create_training_job(
            TrainingJobName=name, AlgorithmSpecification=image, InputDataConfig=channels,
            HyperParameters=self._code("read.py"), **self._plain(),
        )  # fmt: skip

    def _process(self, name: str) -> None:
        self._note(name, "processing-job")
        self._sagemaker.create_processing_job(**self._work(name))

    def _tune(self, name: str) -> None:
        algorithm = {"TrainingImage": "any", "TrainingInputMode": "File",
                     "MetricDefinitions": [{"Name": "loss", "Regex": "loss=([0-9.]+);"}]}  # fmt: skip
        self._note(name, "hyper-parameter-tuning-job")
        self._sagemaker.create_hyper_parameter_tuning_job(
            HyperParameterTuningJobName=name,
            HyperParameterTuningJobConfig={
                "Strategy": "Random", "TrainingJobEarlyStoppingType": "Auto",
                "HyperParameterTuningJobObjective": {"Type": "Minimize", "MetricName": "loss"},
                "ParameterRanges": {"IntegerParameterRanges": [{"Name": "n", "MinValue": "1", "MaxValue": "9"}]},
                "ResourceLimits": {"MaxNumberOfTrainingJobs": TUNED, "MaxParallelTrainingJobs": PARALLEL},
            },
            TrainingJobDefinition={
                "AlgorithmSpecification": algorithm, **self._plain(),
                "StaticHyperParameters": self._code("train.py"),
            },
        )  # fmt: skip

    def _flow(self, name: str) -> None:
        train, work = self._job(""), self._work(f"{name}-work")
        del train["TrainingJobName"], work["ProcessingJobName"]
        decide = {
            "Conditions": [{"Type": "Equals", "LeftValue": {"Get": "Steps.First.TrainingJobStatus"},
                            "RightValue": "Completed"}],
            "IfSteps": [{"Name": "Last", "Type": "Training", "Arguments": train}], "ElseSteps": [],
        }  # fmt: skip
        steps = [
            {"Name": "First", "Type": "Training", "Arguments": train},
            {"Name": "Work", "Type": "Processing", "Arguments": work, "DependsOn": ["First"]},
            {"Name": "Decide", "Type": "Condition", "Arguments": decide},
        ]
        if name not in self._pipelines:
            definition = json.dumps({"Version": "2020-12-01", "Parameters": [], "Steps": steps})
            token = name.ljust(32, "-")
            try:
                self._sagemaker.create_pipeline(
                    PipelineName=name, PipelineDefinition=definition, ClientRequestToken=token, RoleArn=ROLE
                )
            except ClientError as error:
                if "already exists" not in str(error):
                    raise
            self._pipelines.add(name)
        begun = self._sagemaker.start_pipeline_execution(PipelineName=name, ClientRequestToken=name.ljust(32, "-"))
        self._arns[name] = begun["PipelineExecutionArn"]

    def _not_done(self) -> Iterator[str]:
        for name, arn in self._arns.items():
            found = self._server.wait(arn.rpartition("/")[2] if ":training-job/" in arn else arn)
            status = next(value for field, value in found.items() if field.endswith("Status") and value in ENDS)
            if status not in DONE:
                yield f"{name} is {status}: {found.get('FailureReason')}"
            if ":training-job/" in arn and not self._has(f"out/{name}/output/model.tar.gz"):
                yield f"{name} has left no model"
            if ":hyper-parameter-tuning-job/" in arn:
                listed = self._sagemaker.list_training_jobs_for_hyper_parameter_tuning_job(
                    HyperParameterTuningJobName=name
                )["TrainingJobSummaries"]
                if len(listed) != TUNED:
                    yield f"{name} has {len(listed)} training jobs, not {TUNED}"
            elif "/execution/" in arn:
                steps = self._sagemaker.list_pipeline_execution_steps(PipelineExecutionArn=arn)
                names = sorted(each["StepName"] for each in steps["PipelineExecutionSteps"])
                if names != ["Decide", "First", "Last", "Work"]:
                    yield f"{name} has the steps {names}"

    def _has(self, key: str) -> bool:
        found = self._server.client("s3").list_objects_v2(Bucket=BUCKET, Prefix=key)
        return bool(found.get("Contents"))

    def _not_once(self) -> Iterator[str]:
        wanted = {
            job["TrainingJobName"]
            for page in self._sagemaker.get_paginator("list_training_jobs").paginate()
            for job in page["TrainingJobSummaries"]
        }
        wanted |= {name for name, arn in self._arns.items() if ":processing-job/" in arn}
        wanted |= {f"{name}-work" for name in self._pipelines}
        for name, times in Counter({**dict.fromkeys(wanted, 0), **Counter(self._ran.read_text().split())}).items():
            if times != 1 or name not in wanted:
                yield f"{name} ran {times} times{'' if name in wanted else ', and the server knows no such job'}"


ENDS = {*DONE, "Failed", "Stopped"}
