"""``muster serve`` killed at random moments, while jobs are made, wait, begin, run and end.

What must hold: within :data:`SOON` nothing of it is left (no process of a job, no network namespace, no container, no
lock), and a server that is started in the same directory answers and runs a job.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from botocore.config import Config
from botocore.exceptions import BotoCoreError

from fuzzers.findings import MOST_WRONG, Findings
from musterpoint.local.netns_hosts import why_unavailable
from musterpoint.serve import Server

ROLE, BUCKET = "arn:aws:iam::123456789012:role/training", "jobs"
SOON, LONGEST = 5.0, 4.0
"""Seconds in which everything has to be gone, and until a kill at most: most jobs run by then, or are over."""
TOKEN = "MUSTER_TEST_TOKEN"
IMAGE = os.environ.get("MUSTER_TEST_IMAGE_BASE", "")
"""An image for jobs in containers; without one they aren't tried."""
COMMANDS = ("true", "sleep 500 & sleep 500", "trap '' TERM; sleep 500", "setsid sleep 500 & sleep 0.3; exit 3")


def fuzz(seed: int, inputs: int) -> Findings:
    """``inputs`` kills."""
    draw, wrong, tried = random.Random(seed), list[str](), 0
    backends = ["process", *(["netns"] if not why_unavailable() else []), *(["docker"] if IMAGE else [])]
    while tried < inputs and len(wrong) < MOST_WRONG:
        backend, number = backends[tried % len(backends)], draw.randrange(10**6)
        with tempfile.TemporaryDirectory(prefix="muster-kills-") as folder:
            found = [*once(Path(folder), backend, random.Random(number))]
        tried += 1
        wrong += [f"{backend}, seed {number}: {text}" for text in found]
        print(f"fuzz: {tried} kills, {len(wrong)} wrong", file=sys.stderr, flush=True)
    return Findings(tried, tuple(wrong))


def once(folder: Path, backend: str, draw: random.Random) -> Iterator[str]:
    """One server that is killed, and one after it; what didn't hold."""
    token = f"muster-test-{draw.getrandbits(64):016x}"
    images = {"any": IMAGE} if backend == "docker" else {}
    server = Server(folder / "data", backend=backend, image=images, max_jobs=3)
    asking = threading.Thread(target=ask, args=(server, token, draw))
    asking.start()
    time.sleep(LONGEST * draw.random())  # the moment is drawn
    server.kill()
    asking.join()
    began = time.monotonic()
    while left := [*of_token(token), *in_docker(folder)]:
        if time.monotonic() - began > SOON:
            yield f"after {SOON:g} s there is left: {left}"
            break
        time.sleep(0.05)
    with Server(folder / "data", backend=backend, image=images) as again:
        sagemaker = again.client("sagemaker")
        again.client("s3").create_bucket(Bucket=BUCKET)
        sagemaker.create_training_job(**job("after", "true", token))
        found = again.wait("after")
        if found["TrainingJobStatus"] != "Completed":
            yield f"the next server's job is {found['TrainingJobStatus']}: {found.get('FailureReason')}"


def ask(server: Server, token: str, draw: random.Random) -> None:
    """Makes jobs, and stops some, until the server doesn't answer."""
    sagemaker = server.client("sagemaker", config=Config(retries={"total_max_attempts": 1}))
    try:
        server.client("s3").create_bucket(Bucket=BUCKET)
        for number in range(6):
            sagemaker.create_training_job(**job(f"job-{number}", draw.choice(COMMANDS), token, draw.randint(1, 2)))
            if draw.random() < 0.3:
                sagemaker.stop_training_job(TrainingJobName=f"job-{number}")
    except BotoCoreError:
        return
    except sagemaker.exceptions.ClientError as error:
        if "is in status" not in str(error):  # it is over already
            raise


def job(name: str, command: str, token: str, hosts: int = 1) -> dict[str, Any]:
    algorithm = {"TrainingImage": "any", "TrainingInputMode": "File", "ContainerEntrypoint": ["sh", "-c", command]}
    return {
        "TrainingJobName": name,
        "RoleArn": ROLE,
        "AlgorithmSpecification": algorithm,
        "Environment": {TOKEN: token},
        "OutputDataConfig": {"S3OutputPath": f"s3://{BUCKET}/out"},
        "ResourceConfig": {"InstanceType": "ml.m5.large", "InstanceCount": hosts, "VolumeSizeInGB": 1},
        "StoppingCondition": {"MaxRuntimeInSeconds": 600},
    }


def of_token(token: str) -> Iterator[str]:
    """The processes of jobs, by a variable of theirs."""
    wanted = f"{TOKEN}={token}".encode()
    for entry in os.scandir("/proc"):
        if entry.name.isdigit():
            try:
                if wanted in Path(entry.path, "environ").read_bytes().split(b"\0"):
                    yield f"process {entry.name}: {Path(entry.path, 'comm').read_text().strip()}"
            except OSError:
                continue


def in_docker(folder: Path) -> Iterator[str]:
    """The containers that mount something of ``folder``."""
    if not IMAGE:
        return
    words = ["docker", "ps", "--all", "--no-trunc", "--format", "{{json .}}"]
    for line in subprocess.run(words, capture_output=True, text=True, check=True).stdout.splitlines():
        if str(folder) in line:
            yield f"container {json.loads(line)['Names']}"
