"""Faults on demand: does what submits and runs jobs survive them?"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from musterpoint.base.errors import UsageError

from .jobs import BUCKET, Account, hosts, statuses

COUNTS = """
import os, pathlib, signal, sys, time
place = pathlib.Path(os.environ["SM_CHECKPOINT_DIR"], "step")
step = int(place.read_text()) if place.exists() else 0
def stopped(signo, frame):
    place.write_text(str(step))
    sys.exit(0)
signal.signal(signal.SIGTERM, stopped)
print("from step", step, flush=True)
if step:
    pathlib.Path(os.environ["SM_MODEL_DIR"], "from").write_text(str(step))
    sys.exit(0)
step = 7
print("trains", flush=True)
while True:
    time.sleep(500)
"""
WAITS = "import time\nprint('trains', flush=True)\ntime.sleep(500)\n"
SPOT = {
    "EnableManagedSpotTraining": True,
    "StoppingCondition": {"MaxRuntimeInSeconds": 3600, "MaxWaitTimeInSeconds": 7200},
    "CheckpointConfig": {"S3Uri": f"s3://{BUCKET}/checkpoints"},
}
root_only = pytest.mark.skipif(os.geteuid() != 0, reason="needs mount namespaces")


def test_an_interrupted_spot_job_goes_on_from_its_checkpoint(account: Account) -> None:
    account.create("spot", COUNTS, **SPOT)
    account.until_it_says("spot", "trains")
    account.server.interrupt("spot")
    done = account.server.wait("spot")
    assert done["TrainingJobStatus"] == "Completed", account.log("spot")
    run = ["Starting", "Downloading", "Training"]
    assert statuses(done) == [*run, "Interrupted", "Restarting", *run, "Uploading", "Completed"]
    assert account.get("checkpoints/step") == b"7"
    assert account.archive("out/spot/output/model.tar.gz") == {"from": b"7"}


@pytest.mark.lane("sdk")
def test_the_command_makes_faults_beside_the_running_server(account: Account, environ: Mapping[str, str]) -> None:
    account.create("by-command", WAITS, **hosts(2))
    account.until_it_says("by-command", "trains")
    command = [sys.executable, "-m", "musterpoint", "serve"]
    place = ["--data", str(account.server.data)]

    def ask(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([*command, *words, *place], env=environ, capture_output=True, text=True, check=False)

    wrong = ask("interrupt", "by-command")
    assert wrong.returncode == 64 and "isn't a spot job" in wrong.stderr
    assert ask("lose", "by-command", "algo-2").returncode == 0
    assert account.server.wait("by-command")["TrainingJobStatus"] == "Failed"


def test_only_spot_jobs_are_interrupted(account: Account) -> None:
    account.create("on-demand", WAITS)
    account.until_it_says("on-demand", "trains")
    with pytest.raises(UsageError, match="on-demand isn't a spot job"):
        account.server.interrupt("on-demand")
    account.sagemaker.stop_training_job(TrainingJobName="on-demand")
    account.server.wait("on-demand")
    with pytest.raises(UsageError, match="no training job nobody"):
        account.server.interrupt("nobody")


@pytest.mark.lane("sdk")
@pytest.mark.parametrize("attempts", [0, 1])
def test_a_job_that_loses_a_host_fails_or_is_started_again(account: Account, tmp_path: Path, attempts: int) -> None:
    name = f"loses-{attempts}"
    once = tmp_path / "once"
    script = f"import os, time\nprint('trains', flush=True)\nif not os.path.exists({str(once)!r}): time.sleep(500)\n"
    strategy = {"RetryStrategy": {"MaximumRetryAttempts": attempts}} if attempts else {}
    account.create(name, script, **hosts(2), **strategy)
    account.until_it_says(name, "trains")
    once.touch()
    account.server.lose(name, "algo-2")
    done = account.server.wait(name)
    assert ("Restarting" in statuses(done)) is bool(attempts)
    assert done["TrainingJobStatus"] == ("Completed" if attempts else "Failed"), account.log(name)
    if not attempts:
        assert done["FailureReason"].startswith("InternalServerError: We encountered an internal error.")
        assert "algo-2 was lost" in done["FailureReason"]


def test_a_host_that_isnt_there_cant_fail(account: Account) -> None:
    account.create("one-host", WAITS)
    account.until_it_says("one-host", "trains")
    with pytest.raises(UsageError, match="has no host 'algo-2': expected one of algo-1"):
        account.server.lose("one-host", "algo-2")
    account.sagemaker.stop_training_job(TrainingJobName="one-host")
    account.server.wait("one-host")
