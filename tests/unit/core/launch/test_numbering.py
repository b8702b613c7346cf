"""The variables with which platforms number what they started, beside ranks that we start."""

from __future__ import annotations

import pytest

from musterpoint.base.kinds import LAUNCHERS
from musterpoint.core.job.platforms.kubeflow import NUMBERED as KUBEFLOW
from musterpoint.core.job.platforms.slurm import TASKS as SLURM
from musterpoint.core.launch.plan import LaunchPlan
from musterpoint.core.launch.table import find

from .conftest import Planner

SLOTS = {"a": 2, "b": 2, "c": 1}
STEP = {
    "SLURM_JOB_ID": "7", "SLURM_STEP_ID": "0", "SLURM_STEP_NODELIST": "a,b,c", "SLURM_STEP_NUM_NODES": "3",
    "SLURM_STEP_NUM_TASKS": "3", "SLURM_STEP_TASKS_PER_NODE": "1(x3)", "SLURM_NNODES": "3", "SLURM_NTASKS": "3",
    "SLURM_NPROCS": "3", "SLURM_PROCID": "1", "SLURM_LOCALID": "0", "SLURM_NODEID": "1", "SLURM_TASK_PID": "11",
}  # fmt: skip
BATCH = {name: text for name, text in STEP.items() if "STEP" not in name}
MODULES = frozenset({"torch", "deepspeed"})


def seen(plan: LaunchPlan, environ: dict[str, str]) -> list[dict[str, str]]:
    """Slurm's variables of every process of the plan."""
    kept = {name: text for name, text in environ.items() if name not in plan.unset}
    return [
        {
            name: text
            for name, text in {**kept, **{s.name: s.value for s in process.environment}}.items()
            if name in SLURM
        }
        for process in plan.processes
    ]


@pytest.mark.parametrize("environ", [STEP, BATCH])
@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_no_rank_takes_a_task_of_sruns_for_itself(plan: Planner, launcher: str, environ: dict[str, str]) -> None:
    made = plan(launcher, SLOTS, "b", platform="slurm", environ=environ, modules=MODULES)
    tasks = {name: text for name, text in environ.items() if name in SLURM}
    if launcher in ("ranks", "accelerate"):
        assert all(row["SLURM_NTASKS"] == "5" for row in seen(made, environ))
    elif find(launcher).once and environ is STEP:  # one task, one program
        assert all(row == tasks for row in seen(made, environ))
    else:
        assert all(row == {} for row in seen(made, environ))


def test_ranks_have_the_numbers_that_srun_would_give_them(plan: Planner) -> None:
    made = plan("ranks", SLOTS, "b", platform="slurm", environ=STEP)
    whole = {"SLURM_NTASKS": "5", "SLURM_NPROCS": "5", "SLURM_STEP_NUM_TASKS": "5", "SLURM_TASKS_PER_NODE": "2(x2),1",
             "SLURM_STEP_TASKS_PER_NODE": "2(x2),1"}  # fmt: skip
    assert seen(made, STEP) == [
        {**whole, "SLURM_PROCID": "2", "SLURM_LOCALID": "0"},
        {**whole, "SLURM_PROCID": "3", "SLURM_LOCALID": "1"},
    ]
    (even,) = seen(plan("ranks", {"a": 1, "b": 1}, "b", platform="slurm", environ=STEP), STEP)
    assert (even["SLURM_NTASKS_PER_NODE"], even["SLURM_PROCID"]) == ("1", "1")


def test_elsewhere_they_are_the_users(plan: Planner) -> None:
    assert seen(plan("ranks", SLOTS, "b", environ=STEP), STEP)[0]["SLURM_NTASKS"] == "3"


def test_a_trainjobs_numbers_are_those_of_ranks(plan: Planner) -> None:
    names = [name for pair in KUBEFLOW for name in pair]
    environ = {"JAX_PROCESS_ID": "1", "JAX_NUM_PROCESSES": "3", "DMLC_TASK_ID": "1", "DMLC_NUM_WORKER": "3"}
    made = plan("ranks", SLOTS, "b", platform="kubeflow", environ=environ)
    for rank, process in enumerate(made.processes, 2):
        found = {setting.name: setting.value for setting in process.environment if setting.name in names}
        assert found == dict(zip(names, [str(rank), "5"] * 2, strict=True))
    for launcher, unset in (("torchrun", names), ("script", [])):
        made = plan(launcher, SLOTS, "b", platform="kubeflow", environ=environ, modules=MODULES)
        assert [name for name in made.unset if name in names] == unset


@pytest.mark.parametrize(
    ("environ", "flags"),
    [
        ({}, []),
        ({"SLURM_JOBID": "7"}, ["ras ^slurm", "plm rsh"]),
        ({"PBS_JOBID": "7.server"}, ["ras ^tm", "plm rsh"]),
        ({"LSB_JOBID": "7", "OMPI_MCA_plm": "lsf"}, ["ras ^lsf", "plm rsh"]),
    ],
)
def test_open_mpi_starts_its_daemons_through_us(plan: Planner, environ: dict[str, str], flags: list[str]) -> None:
    """The resource manager's components would start them themselves, or find no free slot."""
    words = plan("mpi", {"a": 2, "b": 2}, environ=environ).processes[0].words
    found = [f"{words[at + 1]} {words[at + 2]}" for at, word in enumerate(words) if word == "--mca"]
    assert [each for each in found if each.startswith(("ras ", "plm "))] == flags
