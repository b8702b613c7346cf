"""Checkpoints that are sent beside a job, by a program that may die."""

from __future__ import annotations

import os
import queue
import signal
from pathlib import Path
from typing import Any

import pytest

from musterpoint.serve import training_job
from musterpoint.serve.training_job import Uploader

from .jobs import BUCKET, Account

KEEPS = """
import os, pathlib, time
print("trains", flush=True)
while not pathlib.Path({place!r}).exists():
    time.sleep(0.05)
if {keeps}:
    pathlib.Path(os.environ["SM_CHECKPOINT_DIR"], "step").write_text("7")
"""


def parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def uploaders(above: int) -> list[int]:
    """Those of jobs of the process ``above``, the server."""
    found = []
    for pid in filter(str.isdecimal, os.listdir("/proc")):
        try:
            is_one = b"module.main(request)" in Path(f"/proc/{pid}/cmdline").read_bytes()
            found += [int(pid)] if is_one and parent(parent(int(pid))) == above else []
        except (FileNotFoundError, ProcessLookupError):
            continue  # it has ended
    return found


@pytest.mark.parametrize("keeps", [False, True])
def test_a_job_outlives_what_sends_its_checkpoints(account: Account, tmp_path: Path, keeps: bool) -> None:
    """One that dies has a successor, which sends the rest; without any checkpoint nothing is missed."""
    name = f"outlives-{keeps}".lower()
    script = KEEPS.format(place=str(tmp_path / "go on"), keeps=keeps)
    account.create(name, script, CheckpointConfig={"S3Uri": f"s3://{BUCKET}/{name}"})
    account.until_it_says(name, "trains")
    (uploader,) = uploaders(account.server.pid)
    os.kill(uploader, signal.SIGKILL)
    (tmp_path / "go on").touch()
    done = account.server.wait(name)
    assert done["TrainingJobStatus"] == "Completed", account.log(name)
    assert account.keys(f"{name}/") == ([f"{name}/step"] if keeps else [])


DIES = """echo x >> {count}; echo '{{"watching": true}}'; exit 9"""
WAITS = """echo '{"watching": true}'; read x"""


@pytest.mark.parametrize("has_files", [False, True])
def test_how_often_it_is_started_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_files: bool) -> None:
    """Twice while the job runs, and once more when it has ended, if there is anything to send."""
    said: queue.Queue[str] = queue.Queue()
    monkeypatch.setattr(training_job, "print", lambda words, flush: said.put(words), raising=False)
    folder, count = tmp_path / "checkpoints", tmp_path / "count"
    folder.mkdir()
    uploader = Uploader(lambda: ("/bin/sh", "-c", DIES.format(count=count)), os.environ, "it", str(folder))
    if has_files:
        (folder / "step").touch()
    again = "it ended with code 9; it is started again"
    assert [said.get(timeout=60) for _ in range(3)] == [again, again, f"{again} when the job has ended"]
    uploader.finish()
    assert uploader.unsent() == ("it ended with code 9" if has_files else "")
    assert count.read_text().count("x") == (4 if has_files else 3)


def test_one_of_a_lost_host_has_no_successor(tmp_path: Path, capfd: Any) -> None:
    uploader = Uploader(lambda: ("/bin/sh", "-c", WAITS), os.environ, "it", str(tmp_path))
    uploader.lose()
    assert capfd.readouterr().out == ""
