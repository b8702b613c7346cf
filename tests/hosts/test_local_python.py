"""`muster local` from Python, in pytest, and from a job's file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Callable

import pytest

from musterpoint import local as api
from musterpoint.base.errors import UsageError

PROGRAM = """
import os, sys
rank, colour = os.environ["RANK"], os.environ.get("COLOUR")
print(f"rank {rank} of {os.environ['WORLD_SIZE']}, {sys.argv[1:]}, {colour}", flush=True)
if "--fail" in sys.argv and os.environ["RANK"] == "1":
    raise ValueError("so it is")
"""
TWO: dict[str, Any] = {"hosts": 2, "backend": "process", "launcher": "ranks"}


@pytest.fixture
def program(tmp_path: Path) -> Path:
    path = tmp_path / "code" / "train.py"
    path.parent.mkdir()
    path.write_text(PROGRAM)
    return path


@pytest.mark.lane("suite")
def test_a_function_returns_what_became_of_the_job(muster_local: Callable[..., Any], program: Path) -> None:
    job = muster_local(program, "--epochs", 3, **TWO, env={"COLOUR": "green"})
    assert (job.status, job.code, job.reason) == ("Completed", 0, "")
    assert [(host.name, host.code) for host in job.hosts] == [("algo-1", 0), ("algo-2", 0)]
    assert job.rank_log(1) == "rank 1 of 2, ['--epochs', '3'], green\n"
    assert {event["host"] for event in job.timeline()} == {"control plane", "algo-1", "algo-2"}
    failed = muster_local(program, "--fail", **TWO)
    assert (failed.status, failed.code) == ("Failed", 1)
    assert failed.reason.startswith("AlgorithmError: ValueError: so it is\n")
    assert failed.output != job.output
    assert "ValueError: so it is" in failed.log


def test_what_a_function_refuses(tmp_path: Path, program: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(UsageError, match=r"local.run: env.A is \[1\], expected a text or a number"):
        api.run(program, env={"A": [1]})
    with pytest.raises(UsageError, match=r"unknown option --launchr \(did you mean --launcher\?\)"):
        api.run(program, launchr="ranks")
    assert "unknown option --launchr" in capfd.readouterr().err
    program.write_text("import time\ntime.sleep(600)")
    with pytest.raises(TimeoutError, match=r"didn't end within 2 s"):
        api.run(program, hosts=1, backend="process", timeout=2, output=tmp_path / "late")
    assert json.loads((tmp_path / "late" / "job.json").read_text())["TrainingJobStatus"] == "Stopped"


def test_a_jobs_file(local: Any, program: Path) -> None:
    file = program.parent.parent / "job.json"
    values = {**TWO, "program": "code/train.py", "arguments": ["--epochs", 3], "env": {"COLOUR": "red"}}
    file.write_text(json.dumps(values))
    ran = local.run("-f", file, "--slots", "2")
    assert ran.code == 0, ran.stderr
    assert "rank 3 of 4, ['--epochs', '3'], red" in ran.log("algo-2")
