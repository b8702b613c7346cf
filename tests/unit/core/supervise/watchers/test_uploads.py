"""Where outputs go, whether the sync is ours, and how its sidecar is found, with stand-ins for the user's Pythons."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Iterator

import pytest

from musterpoint.base.errors import UsageError
from musterpoint.base.loop import Loop
from musterpoint.base.probe import ask
from musterpoint.base.settings import Settings
from musterpoint.core.job.hyperparameters import decode
from musterpoint.core.job.model import Job
from musterpoint.core.job.opt_ml import paths_of
from musterpoint.core.job.sagemaker_files import entry_point
from musterpoint.core.processes.sidecars import Sidecars
from musterpoint.core.supervise.state import Outcome
from musterpoint.core.supervise.watcher import WatchedJob
from musterpoint.core.supervise.watchers.uploads import Destination, Uploads, destination_of, watch

JOB = {"TRAINING_JOB_NAME": "job"}


def destination(text: str, environ: dict[str, str] = JOB) -> Destination | None:
    return destination_of(decode({"sagemaker_s3_output": text}, "hyperparameters.json"), environ)


@pytest.mark.parametrize(
    ("text", "environ", "uri"),
    [
        ('"s3://b/a/c"', JOB, "s3://b/a/c/job/output/intermediate/"),
        ("s3://b/a/", JOB, "s3://b/a/job/output/intermediate/"),
        ('"s3://b"', JOB, "s3://b/job/output/intermediate/"),
        ('"s3://b//a"', JOB, "s3://b/a/job/output/intermediate/"),
        ('"s3://b/a"', {}, "s3://b/a/output/intermediate/"),
    ],
)
def test_keys_are_those_of_sagemaker_training(text: str, environ: dict[str, str], uri: str) -> None:
    found = destination(text, environ)
    assert found is not None and found.uri == uri


def test_other_destinations() -> None:
    assert [destination(text) for text in ("null", '""', "")] == [None] * 3
    assert destination('"file:///tmp/x"') == Destination("file:///tmp/x"), "a directory needs no bucket"


@pytest.mark.parametrize("text", ["s3://", "s3:///x", "/opt/x", "http://x/y", "3"])
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="expected s3://BUCKET/PREFIX or file://DIRECTORY"):
        destination(text)


class Bench:
    """A loop, what was said, and the moments recorded."""

    def __init__(self, base: Path) -> None:
        self.base = base
        self.said: list[str] = []
        self.moments: list[dict[str, object]] = []
        self.files: dict[str, object] = {}
        self.loop = Loop()
        self.sidecars = Sidecars(self.loop)

    def sync(self, output: str, interpreter: str = sys.executable, below_toolkit: bool = False) -> Uploads | None:
        hyperparameters = decode({"sagemaker_s3_output": output}, "")
        job = Job("sagemaker", "j", ("algo-1",), "algo-1", ("algo-1",), entry_point((), {}),
                  hyperparameters=hyperparameters, paths=paths_of(str(self.base)), files=self.files)  # fmt: skip
        signals: Any = SimpleNamespace(route_to=lambda _: None)
        environ, say, options = {"PATH": os.environ["PATH"]}, self.said.append, Settings()
        tools = self.loop, self.sidecars, signals, say, lambda event, **facts: self.moments.append(facts), ask
        made = watch(WatchedJob(*tools, environ, options, job, False, (interpreter, below_toolkit)))
        return made if isinstance(made, Uploads) else None

    @property
    def directory(self) -> Path:
        return self.base / "output" / "intermediate"


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    made = Bench(tmp_path)
    yield made
    made.sidecars.close()
    made.loop.close()


def test_a_local_output_is_a_directory_and_nothing_else(bench: Bench) -> None:
    assert bench.sync("file:///somewhere") is None
    assert bench.directory.is_dir()
    assert bench.said == []


def test_a_directory_that_was_there_is_the_platforms(bench: Bench) -> None:
    bench.directory.mkdir(parents=True)
    assert bench.sync("s3://b/p", below_toolkit=True) is None
    assert bench.said == []
    assert bench.sync("s3://b/p") is None
    assert bench.said == [f"{bench.directory} was there before the job: its sync to s3://b/p is the platform's"]


def test_a_job_without_network_gets_its_directory_only(bench: Bench) -> None:
    bench.files = {"trainingjobconfig.json": {"EnableNetworkIsolation": True}}
    assert bench.sync("s3://b/p") is None
    assert bench.directory.is_dir()
    assert "the job has EnableNetworkIsolation" in bench.said[0]


def test_what_is_no_place_is_a_warning(bench: Bench) -> None:
    assert bench.sync("/a/path") is None
    assert "expected s3://BUCKET/PREFIX or file://DIRECTORY" in bench.said[0]
    (bench.base / "output").write_text("in the way")
    assert bench.sync("s3://b/p") is None
    assert "can't be made" in bench.said[1]


def test_nothing_written_nothing_done(bench: Bench) -> None:
    sync = bench.sync("s3://b/p")
    assert sync is not None
    (bench.directory / "folders" / "only").mkdir(parents=True)
    sync.ends(Outcome(0))
    assert (bench.said, bench.moments) == ([], [])


STUB = """#!/bin/sh
{}
"""


def python(bench: Bench, text: str) -> str:
    path = bench.base / "python"
    path.write_text(STUB.format(text))
    path.chmod(0o755)
    return str(path)


def finished(bench: Bench, text: str, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What is said where both Pythons are a program that does ``text``."""
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    sync = bench.sync("s3://b/p", python(bench, text))
    assert sync is not None
    sync.begin()
    (bench.directory / "sub").mkdir()
    (bench.directory / "sub" / "a").write_text("a")
    sync.ends(Outcome(0))
    return bench.said[1:]


def test_no_python_has_boto3(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    said = finished(bench, """echo '{"lacks": "boto3"}'; exit 1""", monkeypatch)
    assert len(said) == 1
    assert "takes boto3, which no Python here has: /nowhere/python (" in said[0]


def test_an_uploader_that_can_not_be_started(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_fork(*_: object) -> None:
        raise OSError(11, "no more processes")

    monkeypatch.setattr(bench.sidecars, "start", no_fork)
    sync = bench.sync("s3://b/p")
    assert sync is not None
    sync.begin()
    (bench.directory / "a").touch()
    sync.ends(Outcome(0))
    said = "warning: the sync to s3://b/p/output/intermediate/ can't be started: no more processes"
    assert bench.said[1:] == [f"{said}; it is tried again when the job has ended", said]


def test_an_uploader_that_always_dies_is_given_up(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    said = finished(bench, "echo out of luck; exit 9", monkeypatch)
    died = "warning: the sync to s3://b/p/output/intermediate/ ended with code 9 (out of luck)"
    assert said == [f"{died}; it is started again"] * 2 + [f"{died}; it is given up"]
    assert len(bench.moments) == 1


def test_an_uploader_that_hangs_is_left_behind_in_time(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("musterpoint.core.processes.beside.UPLOAD_OVERTIME", 0.2)
    monkeypatch.setattr("musterpoint.base.stop_budget.LONGEST_UPLOAD", 0.1)
    said = finished(bench, "exec sleep 60", monkeypatch)
    (text,) = said
    assert re.fullmatch(r"warning: after \d+ s not everything had gone up to s3://b/p/output/intermediate/", text)
