"""Ranks that the platform has started: supervised as they are; or, one per host, replaced by a launcher's."""

from __future__ import annotations

from typing import Any

import pytest

from musterpoint.base.errors import LauncherError
from musterpoint.base.settings import Settings
from musterpoint.core.fabric.devices import Devices
from musterpoint.core.job.model import Distribution, EntryPoint, Job, StartedRank
from musterpoint.core.job.platforms.kubeflow import NUMBERED as KUBEFLOW
from musterpoint.core.job.platforms.slurm import TASKS as SLURM
from musterpoint.core.launch.choose import choose
from musterpoint.core.launch.fabric import miscounted
from musterpoint.core.launch.launch_plan import LaunchPlan
from musterpoint.core.launch.launcher import Wanted
from musterpoint.core.launch.launchers import LAUNCHERS, find_launcher

from .conftest import Planner, Values

TWO_EACH = StartedRank(3, 1, 4, 2, mpi=True)
ONE_EACH = StartedRank(1, 0, 2, 1, mpi=True)
MPI = {"OMPI_COMM_WORLD_RANK": "1", "PMIX_RANK": "1", "PMI_RANK": "1", "RANK": "1", "OMPIRE": "kept"}


def job(started: StartedRank) -> Job:
    each = Distribution("torch_distributed", started.local_size)
    return Job("azureml", "j", ("a", "b"), "b", ("a", "b"), EntryPoint("train.py"), each, started=started)


@pytest.mark.parametrize(
    ("started", "given", "expected"),
    [
        (TWO_EACH, {}, ("ranks", 2)),
        (TWO_EACH, {"slots": 2}, ("ranks", 2)),
        (TWO_EACH, {"launcher": "ranks"}, ("ranks", 2)),
        (ONE_EACH, {}, ("ranks", 1)),
        (ONE_EACH, {"slots": 4}, ("torchrun", 4)),
        (ONE_EACH, {"launcher": "script"}, ("script", 1)),
    ],
)
def test_the_launcher(started: StartedRank, given: dict[str, Any], expected: tuple[str, int]) -> None:
    choice = choose(job(started), Settings(**given), Devices(), lambda module: True, True)
    assert (choice.launcher, choice.slots) == expected


@pytest.mark.parametrize("given", [{}, {"launcher": "accelerate"}])
def test_accelerates_variables_are_added_to_theirs(given: dict[str, Any]) -> None:
    wanted = Wanted(job(TWO_EACH), Settings(), "accelerate", "the program is `accelerate launch`")
    choice = choose(job(TWO_EACH), Settings(**given), Devices(), lambda module: True, True, {}, wanted)
    assert (choice.launcher, choice.slots) == ("accelerate", 2)


@pytest.mark.parametrize("given", [{"slots": 4}, {"launcher": "mpi"}, {"launcher": "torchrun"}, {"launcher": "script"}])
def test_no_rank_starts_ranks(given: dict[str, Any]) -> None:
    with pytest.raises(LauncherError, match=r"^--(slots|launcher) .*: the platform has started 2 processes"):
        choose(job(TWO_EACH), Settings(**given), Devices(), lambda module: True, True)


def test_gpus_without_a_rank_are_warned_about() -> None:
    said = miscounted(job(TWO_EACH), Settings(), Devices(gpus=8), find_launcher("ranks"))
    assert said.startswith("warning: this host has 8 GPUs, and the job asks for 2 processes on it: --slots 8")
    assert miscounted(job(TWO_EACH), Settings(), Devices(gpus=2), find_launcher("ranks")) == ""


def test_what_a_rank_gets(plan: Planner, values: Values) -> None:
    environ = {"MASTER_ADDR": "a.internal", "MASTER_PORT": "6105", "WORLD_SIZE": "", **MPI}
    made = plan("ranks", {"a": 2, "b": 2}, "b", started=TWO_EACH, environ=environ, platform="azureml")
    (process,) = made.processes
    assert (process.role, process.rank, process.local_rank, made.unset) == ("rank", 3, 1, ())
    found = values(made)
    assert [found[name] for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "NODE_RANK")] == [
        "3", "1", "4", "2", "1",
    ]  # fmt: skip
    assert (found["MASTER_ADDR"], found["MASTER_PORT"]) == ("a.internal", "6105"), "as it was set"
    (others,) = made.of_others
    assert (others.words[-3:], made.local_ranks, made.first_rank) == (["train.py", "--lr", "0.1"], 2, 2)
    assert made.under_mpi


def test_numbers_that_do_not_fit(plan: Planner) -> None:
    with pytest.raises(LauncherError, match="4 processes in all, and the roll call found 6, 2 of them here"):
        plan("ranks", {"a": 2, "b": 2, "c": 2}, "b", started=TWO_EACH)


@pytest.mark.parametrize(
    ("launcher", "unset"),
    [("torchrun", {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "RANK"}), ("script", {"RANK"})],
)
def test_another_launcher_starts_its_ranks_without_mpis_variables(
    plan: Planner, launcher: str, unset: set[str]
) -> None:
    made = plan(launcher, {"a": 2, "b": 2}, "b", started=ONE_EACH, environ=MPI, platform="azureml")
    assert unset <= set(made.unset)
    assert not {"OMPIRE", *({"OMPI_COMM_WORLD_RANK"} - unset)} & set(made.unset)


@pytest.mark.parametrize(
    ("launcher", "slots", "started", "unset", "port"),
    [
        ("ranks", 2, TWO_EACH, (), None),
        ("accelerate", 2, TWO_EACH, (), 6105),
        ("ranks", 4, ONE_EACH, ("SLURM_TASK_PID",), 7777),
        ("torchrun", 4, ONE_EACH, ("SLURM_PROCID", "SLURM_TASK_PID"), 7777),
    ],
)
def test_numbers_and_ports_are_the_platforms_for_what_it_started(
    plan: Planner, launcher: str, slots: int, started: StartedRank, unset: tuple[str, ...],
    port: int | None,
) -> None:  # fmt: skip
    """Ranks that a launcher starts in the place of one have others, whichever launcher that is."""
    environ = {"SLURM_PROCID": "0", "SLURM_TASK_PID": "11", "MASTER_PORT": "6105"}
    started = started._replace(rank=0, local_rank=0)
    made = plan(launcher, {"a": slots, "b": slots}, started=started, environ=environ, platform="slurm")
    assert made.unset == unset
    assert (made.meeting.port if made.meeting else None) == port


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
    elif find_launcher(launcher).once and environ is STEP:  # one task, one program
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
