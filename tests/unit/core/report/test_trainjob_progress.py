"""What a program may write into MUSTER_PROGRESS, and what becomes of it; against the server: tests/hosts."""

from __future__ import annotations

import json
import os
import re
import threading
from pathlib import Path
from typing import Any

import pytest

from musterpoint.core.report import trainjob_progress
from musterpoint.core.report.trainjob_progress import SENT, ProgressWatch, status_in
from musterpoint.core.report.trainjob_status import status_of

from ....hosts.test_trainjob_status import FAILED


@pytest.mark.parametrize(
    ("text", "status"),
    [
        ("40", {"progressPercentage": 40}),
        ("99.9\n", {"progressPercentage": 99}),
        ('{"progressPercentage": 0, "estimatedRemainingSeconds": 7.5}',
         {"progressPercentage": 0, "estimatedRemainingSeconds": 7}),
        ('{"metrics": {"loss": 0.25, "stage": "sft"}}',
         {"metrics": [{"name": "loss", "value": "0.25"}, {"name": "stage", "value": "sft"}]}),
        ('{"metrics": [{"name": "loss", "value": "nan"}]}', {"metrics": [{"name": "loss", "value": "nan"}]}),
        ("{}", {}),
    ],
)  # fmt: skip
def test_what_a_program_may_write(text: str, status: dict[str, Any]) -> None:
    assert status_in(text) == status


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("", "Expecting value"), ("true", "progressPercentage is True"), ("140", "expected a number from 0 to 100"),
        ("NaN", "progressPercentage is nan"), ('"40%"', "'40%'"), ("[]", "progressPercentage is []"),
        ('{"percent": 4}', "'percent' is no field"), ('{"estimatedRemainingSeconds": -1}', "is -1"),
        ('{"metrics": ["loss"]}', "metrics is ['loss']"), ('{"metrics": {"": 1}}', "metrics is"),
        ('{"metrics": {"loss": null}}', "metrics is"), ('{"metrics": 3}', "metrics is 3"),
    ],
)  # fmt: skip
def test_what_it_may_not(text: str, named: str) -> None:
    with pytest.raises(ValueError, match=re.escape(named)):
        status_in(text)


def test_a_failure_joins_the_last_progress_within_the_servers_limits() -> None:
    many = {"metrics": {f"m{number}": number for number in range(1000)} | {"failure": "mine"}}
    progress = status_in(json.dumps({"progressPercentage": 5, "estimatedRemainingSeconds": 9, **many}))
    status = status_of(FAILED, progress)
    assert status["progressPercentage"] == 5
    assert "estimatedRemainingSeconds" not in status
    names = [each["name"] for each in status["metrics"]]
    assert len(names) == len(set(names)) <= 256
    assert names[0] == "m0"
    assert names[-4:] == ["failure", "exit_code", "failed_host", "failed_rank"]


def test_the_newest_is_sent_and_what_is_wrong_is_said_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trainjob_progress, "LOOK", 0.001)
    monkeypatch.setattr(trainjob_progress, "EVERY", 0.0)
    sent, said, came, spoke = [], [], threading.Event(), threading.Event()

    def send(status: dict[str, Any]) -> str:
        sent.append(status)
        came.set()
        return ""

    def say(text: str) -> None:
        said.append(text)
        spoke.set()

    path = tmp_path / "progress.json"
    watch = ProgressWatch(str(path), send, say)
    path.write_text("half")
    assert spoke.wait(500)
    path.write_text("20")
    assert came.wait(500)
    path.write_text("30")
    assert watch.end(sends=True, seconds=60) == {"progressPercentage": 30}
    assert [sent[0], sent[-1]] == [{"progressPercentage": 20}, {"progressPercentage": 30}]
    assert len(said) == 1
    assert said[0].startswith(f"MUSTER_PROGRESS={path}: Expecting value")
    assert os.listdir(tmp_path) == []


def test_what_the_program_sent_itself_is_kept_and_not_sent_again(tmp_path: Path) -> None:
    sent: list[dict[str, Any]] = []

    def send(status: dict[str, Any]) -> str:
        sent.append(status)
        return ""

    path = tmp_path / "progress.json"
    watch = ProgressWatch(str(path), send, print)
    (tmp_path / f"progress.json{SENT}").write_text('{"progressPercentage": 70, "metrics": {"loss": "0.1"}}')
    (tmp_path / "elsewhere").write_text("1")
    path.symlink_to(tmp_path / "elsewhere")
    os.utime(path, ns=(1, 1), follow_symlinks=False)
    assert watch.end(sends=True) == {"progressPercentage": 70, "metrics": [{"name": "loss", "value": "0.1"}]}
    assert sent == []
    assert os.listdir(tmp_path) == ["elsewhere"], "a link is not followed"
