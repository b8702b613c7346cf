"""Ranks that the platform has started: supervised as they are; or, one per host, replaced by a launcher's."""

from __future__ import annotations

from typing import Any

import pytest

from musterpoint.base.errors import LauncherError
from musterpoint.base.settings import Settings
from musterpoint.core.fabric.devices import Devices
from musterpoint.core.job.model import Distribution, EntryPoint, Job, StartedRank
from musterpoint.core.launch.choose import choose
from musterpoint.core.launch.fabric import miscounted
from musterpoint.core.launch.launcher import Wanted
from musterpoint.core.launch.table import find

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
    said = miscounted(job(TWO_EACH), Settings(), Devices(gpus=8), find("ranks"))
    assert said.startswith("warning: this host has 8 GPUs, and the job asks for 2 processes on it: --slots 8")
    assert miscounted(job(TWO_EACH), Settings(), Devices(gpus=2), find("ranks")) == ""


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
