"""pytest: tests of jobs on several hosts of this machine, and of what speaks to SageMaker's training API.

A test with the mark runs in every rank of a job, and passes where it passes in all of them::

    @pytest.mark.muster(hosts=2, slots=2)
    def test_ranks_agree():
        assert os.environ["WORLD_SIZE"] == "4"

The fixture ``muster_local`` runs a program instead, ``muster_serve`` is a server of that API::

    def test_training(muster_local):
        job = muster_local("train.py", hosts=2, slots=2, launcher="ranks")
        assert job.code == 0, job.reason

    def test_pipeline(muster_serve):  # needs musterpoint[serve]
        submit_my_job()  # with boto3, or a SageMaker SDK
        assert muster_serve.wait("my-job")["TrainingJobStatus"] == "Completed"
"""

from __future__ import annotations

import os
from importlib import import_module
from pathlib import Path
from typing import Any, Callable, Iterator
from urllib.parse import urlsplit

import pytest

from musterpoint import local

_INSIDE = "MUSTER_PYTEST_RANK"
"""Set in the ranks, where the test itself runs."""
_OF_AWS = (
    "AWS_PROFILE", "AWS_DEFAULT_PROFILE", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN",
    "AWS_REGION", "AWS_IGNORE_CONFIGURED_ENDPOINT_URLS",
)  # fmt: skip
"""What a test with a server of its own doesn't have, beside AWS_ENDPOINT_URL and AWS_ENDPOINT_URL_SERVICE."""
_RANK = Path(__file__).with_name("pytest_rank.py")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers",
        "muster(hosts=2, slots=1, launcher='ranks', **options): run the test in every rank of a job on hosts of this "
        "machine; options are those of musterpoint.local.run",
    )


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Outside of the ranks a test's own fixtures aren't made."""
    if os.environ.get(_INSIDE):
        return
    for item in items:
        mark = item.get_closest_marker("muster")
        if mark is not None and isinstance(item, pytest.Function):
            if mark.args:
                raise pytest.UsageError(f"{item.nodeid}: the mark muster takes options by name, such as hosts=2")
            item.fixturenames[:] = ["tmp_path"]


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> object:
    """Runs the job of a marked test, in the place of the test."""
    mark = pyfuncitem.get_closest_marker("muster")
    if mark is None or os.environ.get(_INSIDE):
        return None
    options: dict[str, Any] = {"hosts": 2, "slots": 1, "launcher": "ranks", **mark.kwargs}
    options["env"] = {**options.get("env", {}), _INSIDE: "1"}
    options.setdefault("output", Path(str(pyfuncitem.funcargs["tmp_path"])) / "muster-job")
    options.setdefault("source_dir", _RANK.parent)
    config = pyfuncitem.config
    test = f"{pyfuncitem.path}::{pyfuncitem.nodeid.partition('::')[2]}"
    words = ("-q", "-p", "no:cacheprovider", "--rootdir", config.rootpath, "-o", "addopts=", test)
    job = local.run(_RANK.name, *words, **options)
    if job.code:
        pytest.fail(f"{job.reason}\nlogs: {job.output / 'hosts'}", pytrace=False)
    return True


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
    for name in [name for name in os.environ if name in _OF_AWS or name.startswith("AWS_ENDPOINT_URL")]:
        monkeypatch.delenv(name)
    with import_module("musterpoint.serve").Server(tmp_path / "muster-serve") as server:
        monkeypatch.setattr(import_module("boto3"), "DEFAULT_SESSION", None)  # it keeps the keys of who asked first
        for name in ("NO_PROXY", "no_proxy"):
            monkeypatch.setenv(name, ",".join(filter(None, (os.environ.get(name), urlsplit(server.url).hostname))))
        for name, value in server.variables.items():
            monkeypatch.setenv(name, value)
        yield server
