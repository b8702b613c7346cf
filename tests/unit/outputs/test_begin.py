"""Whether the sync is ours, and how its sidecar is found, with programs that stand in for the user's Pythons."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from typing import Iterator

import pytest

from musterpoint.job.hyperparameters import decode
from musterpoint.job.model import Job
from musterpoint.job.sagemaker import entry_point, paths_of
from musterpoint.loop import Loop
from musterpoint.outputs.sync import Means, Sync, sync_of
from musterpoint.processes.sidecars import Sidecars


class Ground:
    """A loop, what was said, and the moments recorded."""

    def __init__(self, base: Path) -> None:
        self.base = base
        self.said: list[str] = []
        self.moments: list[dict[str, object]] = []
        self.files: dict[str, object] = {}
        self.loop = Loop()
        self.sidecars = Sidecars(self.loop)

    def sync(self, output: str, interpreter: str = sys.executable, below_toolkit: bool = False) -> Sync | None:
        hyperparameters = decode({"sagemaker_s3_output": output}, "")
        job = Job("sagemaker", "j", ("algo-1",), "algo-1", ("algo-1",), entry_point((), {}),
                  hyperparameters=hyperparameters, paths=paths_of(str(self.base)), files=self.files)  # fmt: skip
        means = Means(self.loop, self.sidecars, self.said.append, lambda event, **facts: self.moments.append(facts))
        return sync_of(job, {"PATH": os.environ["PATH"]}, interpreter, 30.0, means, below_toolkit)

    @property
    def directory(self) -> Path:
        return self.base / "output" / "intermediate"


@pytest.fixture
def ground(tmp_path: Path) -> Iterator[Ground]:
    made = Ground(tmp_path)
    yield made
    made.sidecars.close()
    made.loop.close()


def test_a_local_output_is_a_directory_and_nothing_else(ground: Ground) -> None:
    assert ground.sync("file:///somewhere") is None
    assert ground.directory.is_dir()
    assert ground.said == []


def test_a_directory_that_was_there_is_the_platforms(ground: Ground) -> None:
    ground.directory.mkdir(parents=True)
    assert ground.sync("s3://b/p", below_toolkit=True) is None
    assert ground.said == []
    assert ground.sync("s3://b/p") is None
    assert ground.said == [f"{ground.directory} was there before the job: its sync to s3://b/p is the platform's"]


def test_a_job_without_network_gets_its_directory_only(ground: Ground) -> None:
    ground.files = {"trainingjobconfig.json": {"EnableNetworkIsolation": True}}
    assert ground.sync("s3://b/p") is None
    assert ground.directory.is_dir()
    assert "the job has EnableNetworkIsolation" in ground.said[0]


def test_what_is_no_place_is_a_warning(ground: Ground) -> None:
    assert ground.sync("/a/path") is None
    assert "expected s3://BUCKET/PREFIX or file://DIRECTORY" in ground.said[0]
    (ground.base / "output").write_text("in the way")
    assert ground.sync("s3://b/p") is None
    assert "can't be made" in ground.said[1]


def test_nothing_written_nothing_done(ground: Ground) -> None:
    sync = ground.sync("s3://b/p")
    assert sync is not None
    sync.finish(None)
    assert (ground.said, ground.moments) == ([], [])


STUB = """#!/bin/sh
{}
"""


def python(ground: Ground, text: str) -> str:
    path = ground.base / "python"
    path.write_text(STUB.format(text))
    path.chmod(0o755)
    return str(path)


def finished(ground: Ground, text: str, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What is said where both Pythons are a program that does ``text``."""
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    sync = ground.sync("s3://b/p", python(ground, text))
    assert sync is not None
    sync.begin()
    (ground.directory / "a").write_text("a")
    sync.finish(None)
    return ground.said[1:]


@pytest.mark.timeout(120)
def test_no_python_has_boto3(ground: Ground, monkeypatch: pytest.MonkeyPatch) -> None:
    said = finished(ground, "exit 3", monkeypatch)
    assert len(said) == 1
    assert "takes boto3, which no Python here has (/nowhere/python, " in said[0]


def test_an_uploader_that_can_not_be_started(ground: Ground, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_fork(*_: object) -> None:
        raise OSError(11, "no more processes")

    monkeypatch.setattr(ground.sidecars, "start", no_fork)
    sync = ground.sync("s3://b/p")
    assert sync is not None
    sync.begin()
    (ground.directory / "a").touch()
    sync.finish(None)
    said = "warning: the sync to s3://b/p/output/intermediate/ can't be started: no more processes"
    assert ground.said[1:] == [f"{said}; it is tried again when the job has ended", said]


@pytest.mark.timeout(120)
def test_an_uploader_that_always_dies_is_given_up(ground: Ground, monkeypatch: pytest.MonkeyPatch) -> None:
    said = finished(ground, "echo out of luck; exit 9", monkeypatch)
    assert said == ["warning: the sync to s3://b/p/output/intermediate/ ended with code 9 (out of luck)"]
    assert len(ground.moments) == 1


@pytest.mark.timeout(120)
def test_an_uploader_that_hangs_is_left_behind_in_time(ground: Ground, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("musterpoint.outputs.sync.LATE", 0.2)
    monkeypatch.setattr("musterpoint.outputs.sync.LONGEST", 0.1)
    said = finished(ground, "exec sleep 60", monkeypatch)
    (text,) = said
    assert re.fullmatch(r"warning: after \d+ s not everything had gone up to s3://b/p/output/intermediate/", text)
