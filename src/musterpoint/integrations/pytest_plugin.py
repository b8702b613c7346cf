"""pytest: the fixture ``muster_local`` runs a program on several hosts of this machine, ``muster_serve`` is a server of
SageMaker's training API.

::

    def test_training(muster_local):
        job = muster_local("train.py", hosts=2, slots=2, launcher="ranks")
        assert job.code == 0, job.reason

    def test_pipeline(muster_serve):  # needs musterpoint[serve]
        submit_my_job()  # with boto3, or a SageMaker SDK
        assert muster_serve.wait("my-job")["TrainingJobStatus"] == "Completed"
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any, Callable, Iterator

import pytest

from musterpoint import local


@pytest.fixture
def muster_local(tmp_path: Path) -> Callable[..., Any]:
    """:func:`musterpoint.local.run`, with what each job leaves below the test's ``tmp_path``."""
    count = 0

    def run(program: Any, *arguments: object, **options: Any) -> local.JobDescription:
        nonlocal count
        count += 1
        options.setdefault("output", tmp_path / f"muster-job-{count}")
        return local.run(program, *arguments, **options)

    return run


@pytest.fixture
def muster_serve(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A :class:`musterpoint.serve.Server` of the test's own; ``AWS_ENDPOINT_URL`` and its kin lead to it meanwhile."""
    for name in ("AWS_PROFILE", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_REGION"):
        monkeypatch.delenv(name, raising=False)
    with import_module("musterpoint.serve").Server(tmp_path / "muster-serve") as server:
        for name, value in server.variables.items():
            monkeypatch.setenv(name, value)
        yield server
