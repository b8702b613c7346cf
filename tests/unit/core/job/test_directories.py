"""SM_MODEL_DIR and its kin under every platform: variables and directories, where those can be made."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from musterpoint.core.job import platforms
from musterpoint.core.job.directories import NAMES, made, with_directories
from musterpoint.core.job.model import EntryPoint, Job, Paths
from musterpoint.core.job.opt_ml import BASE
from musterpoint.core.job.platform import Platform

PLATFORMS: list[tuple[str, str]] = [
    ("plain", "work/muster-jobs/my-job"), ("slurm", "work/muster-jobs/my-job"), ("azureml", "work/outputs"),
    ("kubernetes", "opt/ml"), ("kubeflow", "opt/ml"), ("vertex", "opt/ml"),
]  # fmt: skip


def job(platform: str, name: str = "my job", paths: Paths = Paths()) -> Job:  # noqa: B008
    return Job(platform, name, ("a",), "a", ("a",), EntryPoint("t.py"), paths=paths)


@pytest.fixture
def work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    load, base = platforms.load, str(tmp_path / "opt" / "ml")

    def moved(name: str) -> Platform:
        """The platform with its directories below the test's own."""
        platform = load(name)
        return platform._replace(folder=base) if platform.folder == BASE else platform

    monkeypatch.setattr(platforms, "load", moved)
    (tmp_path / "work").mkdir()
    return tmp_path / "work"


@pytest.mark.parametrize(("platform", "place"), PLATFORMS)
def test_every_platform_has_them(platform: str, place: str, work: Path) -> None:
    planned = job(platform)
    planned = planned._replace(paths=with_directories(planned, str(work)))
    assert os.listdir(work) == [], "muster plan makes nothing"
    ready, said = made(planned)
    folders = [getattr(ready.paths, field) for field in NAMES]
    assert folders == [str(work.parent / place / name) for name in NAMES.values()]
    assert all(map(os.path.isdir, folders))
    assert ("muster-jobs" in said) == ("muster-jobs" in place), "a directory in the user's own is made known"
    assert made(planned) == (ready, ""), "once"


def test_machines_of_ones_own_keep_reports_apart_by_host(work: Path) -> None:
    paths = with_directories(job("plain"), str(work))
    assert paths.failure == str(work / "muster-jobs/my-job/hosts/a/failure")
    assert paths.success == str(work / "muster-jobs/my-job/hosts/a/success")
    given = job("slurm", paths=Paths(failure="/mnt/output/failure", success="/mnt/output/success"))
    assert with_directories(given, str(work)).failure == "/mnt/output/failure"
    assert with_directories(job("azureml"), str(work)).failure == ""


def test_what_the_platform_gives_stays(work: Path) -> None:
    given = job("azureml", paths=Paths(model="/mnt/model"))
    assert with_directories(given, str(work)).model == "/mnt/model"
    sagemaker = job("sagemaker")
    assert with_directories(sagemaker, str(work)) == sagemaker.paths
    assert made(sagemaker) == (sagemaker, "")


def test_where_none_can_be_made_there_is_no_variable(work: Path) -> None:
    (work / "muster-jobs").write_text("a file")
    planned = job("plain")
    ready, said = made(planned._replace(paths=with_directories(planned, str(work))))
    assert ready.paths == Paths()
    assert said.startswith("SM_MODEL_DIR, SM_OUTPUT_DATA_DIR, SM_CHECKPOINT_DIR aren't all set: ")


@pytest.mark.parametrize("name", ["../../etc", "..", ".", "a/b"])
def test_no_name_of_a_job_leads_elsewhere(name: str, work: Path) -> None:
    paths = with_directories(job("plain", name), str(work))
    assert Path(os.path.normpath(paths.model)).parent.parent == work / "muster-jobs"
