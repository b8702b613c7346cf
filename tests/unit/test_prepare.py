"""This host's plan, from the steps before it: what the devices of this host add."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from musterpoint.errors import UsageError
from musterpoint.fabric import cuda
from musterpoint.fabric.devices import Devices
from musterpoint.job.read import read_job
from musterpoint.launch.plan import LaunchPlan
from musterpoint.prepare import plan_host, prepare_host
from musterpoint.preview import assumed_roster
from musterpoint.settings import Settings


def plan(tmp_path: Path, launcher: str, gpus: int, compat: str, **environ: str) -> LaunchPlan:
    """On two hosts with this many GPUs."""
    (tmp_path / "train.py").touch()
    options = Settings(launcher=launcher, slots=2, cuda_compat=compat)
    words = {**environ, "SM_HOSTS": '["algo-1", "algo-2"]', "SM_CURRENT_HOST": "algo-1", "PATH": os.environ["PATH"]}
    job = read_job(words, options, "", str(tmp_path / "train.py"), (), False)
    host = prepare_host(job, options, words)._replace(devices=Devices(cpus=2, gpus=gpus, interfaces=("eth0",)))
    return plan_host(job, options, host, assumed_roster(job, options, lambda name: 2, {}), words)


def paths(plan: LaunchPlan) -> dict[str, str]:
    settings = (*plan.environment, *(setting for process in plan.processes for setting in process.environment))
    return {setting.name: setting.value for setting in settings if setting.name == "LD_LIBRARY_PATH"}


@pytest.mark.parametrize("launcher", ["script", "ranks", "tensorflow"])
def test_cudas_compatibility_library_comes_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, launcher: str
) -> None:
    monkeypatch.setattr(cuda, "driver_version", lambda root: "535.183.01")
    monkeypatch.setattr(cuda, "compat_version", lambda root: "570.124.06")
    assert paths(plan(tmp_path, launcher, 2, "auto")) == {"LD_LIBRARY_PATH": cuda.COMPAT}
    own = plan(tmp_path, launcher, 2, "auto", LD_LIBRARY_PATH="/mine")
    assert paths(own) == {"LD_LIBRARY_PATH": f"{cuda.COMPAT}:/mine"}
    assert paths(plan(tmp_path, launcher, 2, "off")) == {}
    assert paths(plan(tmp_path, launcher, 0, "auto")) == {}

    monkeypatch.setattr(cuda, "_refusal", lambda driver, root: "the card refuses it")
    refused = plan(tmp_path, launcher, 2, "auto", LD_LIBRARY_PATH="/mine")
    assert paths(refused) == {}
    assert [note for note in refused.notes if "the card refuses it" in note]


def test_what_no_system_takes_is_an_error_that_names_the_longest(tmp_path: Path) -> None:
    """Each is short enough; together they are not. The kernel would only say that the list is too long."""
    most = {f"BIG_{number}": "x" * 100_000 for number in range(70)}
    with pytest.raises(UsageError) as error:
        plan(tmp_path, "ranks", 0, "auto", **most, LARGEST="x" * 110_000)
    assert str(error.value).startswith("the arguments and variables of rank 0 take 7,")
    assert "the longest are the variable LARGEST (110,000 bytes), the variable BIG_" in str(error.value)
    plan(tmp_path, "ranks", 0, "auto", FITS="x" * 100_000)
