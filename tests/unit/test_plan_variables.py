"""``muster plan`` explains every variable, on every platform, from the variables recorded there."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Iterator

import pytest

from musterpoint.code import interpreter
from musterpoint.errors import MusterError
from musterpoint.job.variables import of_platform
from musterpoint.launch.plan import LaunchPlan
from musterpoint.preview import Preview, preview_request
from musterpoint.runtime import Request

from .job import test_azureml, test_kubernetes, test_slurm, test_vertex

SAGEMAKER = {
    "SM_HOSTS": '["algo-1", "algo-2"]', "SM_CURRENT_HOST": "algo-2", "SM_NUM_GPUS": "0", "SM_CHANNELS": "[]",
    "SM_MODEL_DIR": "/opt/ml/model", "TRAINING_JOB_NAME": "digits",
}  # fmt: skip
VERTEX = {"cluster": test_vertex.CLUSTER, "task": {"type": "workerpool1", "index": 0}, "job": test_vertex.JOB}
PLAIN = {"NNODES": "2", "NODE_RANK": "1", "MASTER_ADDR": "10.0.0.4", "MASTER_PORT": "29500"}


def recorded() -> Iterator[tuple[str, dict[str, str]]]:
    """The sets of the platforms' own tests, and of those that have none."""
    for name, (environ, *_rest) in test_azureml.JOBS.items():
        yield f"azureml {name}", environ
    for number, (_platform, environ, *_) in enumerate(test_kubernetes.READ):
        yield f"kubernetes {number}", environ
    for number, (environ, *_) in enumerate(test_kubernetes.UNNAMED):
        yield f"kubernetes unnamed {number}", environ
    for number, (environ, *_) in enumerate(test_slurm.READ):
        yield f"slurm {number}", environ
    yield "slurm components", {**test_slurm.SRUN, **test_slurm.HET_STEP, "SLURM_NODEID": "0"}
    yield "vertex", {"CLUSTER_SPEC": json.dumps(VERTEX), "CLOUD_ML_JOB_ID": "7"}
    yield "sagemaker", SAGEMAKER
    yield "plain", PLAIN


SETS = dict(recorded())


def plans_of(environ: dict[str, str], program: Path) -> Iterator[tuple[str, Preview]]:
    """The plans under each launcher that this machine has, and the platform's variables would let run."""
    here = {"PATH": "/usr/bin:/bin", **environ}
    for launcher in ("ranks", "script", "torchrun", "ray"):
        try:
            yield launcher, preview_request(Request(here, {"launcher": launcher}, str(program), typed=True))
        except MusterError as error:
            assert launcher != "ranks" and (launcher == "torchrun" or "launcher" in str(error)), error


@pytest.fixture(autouse=True)
def one_python(monkeypatch: pytest.MonkeyPatch) -> None:
    """All jobs have the same Python, which isn't asked for its modules."""
    has = {"ray", "torch", "xgboost"}
    monkeypatch.setattr(interpreter, "modules_among", lambda modules, *_: frozenset(has.intersection(modules)))


def unexplained(plan: LaunchPlan) -> list[str]:
    settings = [*plan.environment, *(each for process in plan.processes for each in process.environment)]
    words = [process.name for process in plan.processes if not process.argv[0].reason]
    return [each.name for each in settings if not each.reason.strip()] + words


@pytest.mark.parametrize("name", SETS)
def test_every_variable_has_a_reason(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    program = tmp_path / "train.py"
    program.write_text("print('trains')\n")
    seen = 0
    for launcher, shown in plans_of(SETS[name], program):
        seen += 1
        for plan in shown.plans:
            assert unexplained(plan) == [], launcher
        explained = {each.name: each.reason for each in shown.used}
        assert set(of_platform(shown.job.platform, SETS[name])) <= set(explained)
        assert all(explained.values())
        for host, plan in zip(shown.job.hosts, shown.plans, strict=True):
            own = [each.value for each in plan.environment if "musterpoint/node-" in each.value]
            assert all(f"musterpoint/node-{shown.job.hosts.index(host)}" in value for value in own)
    assert seen


def test_what_a_job_was_read_from_is_told_from_the_rest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text("")
    ((_, shown), *_) = plans_of(SETS["slurm 0"], tmp_path / "train.py")
    said = {each.name: each.reason for each in shown.used}
    assert said["SLURM_STEP_NODELIST"] == "read; ranks get it as it is"
    assert said["SLURM_CLUSTER_NAME"] == "not needed: others say enough; ranks get it as it is"
    assert said["SLURM_GTIDS"].endswith("; taken away, since it would mislead the launcher or ranks")
    assert said["SLURM_NTASKS"].startswith("read; ")
