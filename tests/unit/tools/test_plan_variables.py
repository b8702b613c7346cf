"""``muster plan`` explains every variable, on every platform, from the variables recorded there."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Iterator

import pytest

from musterpoint.base.errors import MusterError
from musterpoint.base.masking import Masker
from musterpoint.core.code import interpreter
from musterpoint.core.fabric.accelerate_config import Accelerate
from musterpoint.core.fabric.mpirun import OPEN_MPI, Mpi
from musterpoint.core.job import platforms
from musterpoint.core.job.variables import of_platform
from musterpoint.core.launch.launch_plan import LaunchPlan
from musterpoint.core.launch.launchers import LAUNCHERS, accelerate, mpi
from musterpoint.core.runtime import Request
from musterpoint.tools.plans.page import page_of, words_of
from musterpoint.tools.plans.preview import Preview, preview_request

from ..core.job import test_azureml, test_kubernetes, test_other_platforms, test_slurm

SAGEMAKER = {
    "SM_HOSTS": '["algo-1", "algo-2"]', "SM_CURRENT_HOST": "algo-2", "SM_NUM_GPUS": "0", "SM_CHANNELS": "[]",
    "SM_MODEL_DIR": "/opt/ml/model", "TRAINING_JOB_NAME": "digits",
}  # fmt: skip
VERTEX = {
    "cluster": test_other_platforms.CLUSTER,
    "task": {"type": "workerpool1", "index": 0},
    "job": test_other_platforms.JOB,
}
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
    """The plans under each launcher that the platform's variables would let run."""
    here = {"PATH": "/usr/bin:/bin", **environ}
    for launcher in LAUNCHERS:
        try:
            yield launcher, preview_request(Request(here, {"launcher": launcher}, str(program), typed=True))
        except MusterError as error:
            refused = launcher in ("torchrun", "parameter-server", "tensorflow") or "launcher" in str(error)
            assert launcher != "ranks" and refused, (launcher, error)


@pytest.fixture(autouse=True)
def one_python(monkeypatch: pytest.MonkeyPatch) -> None:
    """All jobs have the same Python, which isn't asked for its modules, and an MPI."""
    monkeypatch.setattr(interpreter, "modules_among", lambda modules, *_: frozenset(modules))
    open_mpi = Mpi("/usr/bin/mpirun", OPEN_MPI, (4, 1, 4), "mpirun (Open MPI) 4.1.4")
    monkeypatch.setattr(mpi, "find_mpi", lambda *_: open_mpi)
    monkeypatch.setattr("musterpoint.core.fabric.mpirun.mpirun_of", lambda *_: "/usr/bin/mpirun")
    found = Accelerate("1.15.0", on_cpus=True, backend="gloo", variables={"ACCELERATE_USE_CPU": "true"})
    monkeypatch.setattr(accelerate, "ask_accelerate", lambda *_: found)


RELATIVE = ("the same", "likewise", "and ", "so do", "as above", "it too")
"""How a reason begins that needs the one before it, which may stand elsewhere on the page."""


def unexplained(plan: LaunchPlan) -> list[str]:
    """What the plan sets without a reason of its own."""
    processes = (*plan.processes, *plan.of_others)
    settings = [*plan.environment, *(each for process in processes for each in process.environment)]
    explained = [(each.name, each.reason) for each in settings]
    for process in processes:
        explained += [(words.text, words.reason) for words in words_of(process, Masker())]
    explained += [(cpus.cpus, cpus.reason) for cpus in plan.cpu_sets]
    return [name for name, reason in explained if not reason.strip() or reason.startswith(RELATIVE)]


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
        for part in page_of(shown.subject, shown.plans, shown.plans, (), Masker(), shown.used, everything=True).hosts:
            assert all(row.reason for block in part.blocks for row in block.rows), (launcher, part.title)
        explained = {each.name: each.reason for each in shown.used}
        assert set(of_platform(platforms.load(shown.job.platform), SETS[name])) <= set(explained)
        assert all(explained.values())
        for host, plan in zip(shown.job.hosts, shown.plans, strict=True):
            own = [each.value for each in plan.environment if "musterpoint/node-" in each.value]
            assert all(f"musterpoint/node-{shown.job.hosts.index(host)}" in value for value in own)
    assert seen


@pytest.mark.parametrize("name", ["sagemaker", "kubernetes 0", "slurm 0"])
def test_every_launcher_has_a_plan(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").touch()
    assert {launcher for launcher, _ in plans_of(SETS[name], tmp_path / "train.py")} == set(LAUNCHERS)


def test_hosts_with_different_numbers_of_tasks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").touch()
    here = {"PATH": "/usr/bin:/bin", **test_slurm.PER_SLOT}
    shown = preview_request(Request(here, {}, str(tmp_path / "train.py"), typed=True))
    assert [(plan.first_rank, plan.local_ranks, plan.world_size) for plan in shown.plans] == [(0, 2, 5), (2, 3, 5)]
    ranks = [
        {each.name: each.value for each in (*plan.environment, *plan.processes[0].environment)} for plan in shown.plans
    ]
    assert [(each["RANK"], each["LOCAL_RANK"], each["LOCAL_WORLD_SIZE"]) for each in ranks] == [
        ("1", "1", "2"), ("4", "2", "3"),
    ]  # fmt: skip


def test_what_a_job_was_read_from_is_told_from_the_rest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text("")
    shown = dict(plans_of(SETS["slurm 0"], tmp_path / "train.py"))["ranks"]
    said = {each.name: each.reason for each in shown.used}
    assert said["SLURM_STEP_NODELIST"] == "read; ranks get it as it is"
    assert said["SLURM_CLUSTER_NAME"] == "not needed: others say enough; ranks get it as it is"
    assert said["SLURM_GTIDS"].endswith("; taken away, since it would mislead the launcher or ranks")
    assert said["SLURM_NTASKS"].startswith("read; ")
