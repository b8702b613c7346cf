"""torch's variables, made of those of every launcher."""

from __future__ import annotations

import importlib.util
from typing import Any

import pytest

from .conftest import SMDISTRIBUTED


@pytest.fixture(scope="module")
def rank_environment() -> Any:
    """The module by itself, as no finder is installed here."""
    place = SMDISTRIBUTED / "shared" / "rank_environment.py"
    spec = importlib.util.spec_from_file_location("rank_environment", place)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


OPEN_MPI = {
    "OMPI_COMM_WORLD_RANK": "3", "OMPI_COMM_WORLD_SIZE": "4", "OMPI_COMM_WORLD_LOCAL_RANK": "1",
    "OMPI_COMM_WORLD_LOCAL_SIZE": "2",
}  # fmt: skip
HYDRA = {"PMI_RANK": "3", "PMI_SIZE": "4", "MPI_LOCALRANKID": "1", "MPI_LOCALNRANKS": "2"}
TORCHRUN = {"RANK": "3", "WORLD_SIZE": "4", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2"}
SLURM = {
    "SLURM_PROCID": "3", "SLURM_NTASKS": "4", "SLURM_LOCALID": "1", "SLURM_NODEID": "1",
    "SLURM_STEP_TASKS_PER_NODE": "2(x2)", "SLURM_STEP_NODELIST": "gpu[07-08]", "SLURM_STEP_ID": "0",
    "SLURM_STEP_NUM_TASKS": "4",
}  # fmt: skip
HOSTS = {"SM_HOSTS": '["algo-1", "algo-2"]'}


@pytest.mark.parametrize(
    ("launched", "address"),
    [
        (TORCHRUN | HOSTS, "algo-1"),
        (TORCHRUN | HOSTS | {"MASTER_ADDR": "10.0.0.1"}, "10.0.0.1"),
        (OPEN_MPI | HOSTS, "algo-1"),
        (OPEN_MPI | HOSTS | {"SMDATAPARALLEL_SERVER_ADDR": "algo-7"}, "algo-7"),
        (HYDRA | HOSTS, "algo-1"),
        (SLURM, "gpu07"),
        (SLURM | {"SLURM_STEP_NODELIST": "login,gpu[07-08]"}, "login"),
    ],
)
def test_every_launcher(rank_environment: Any, launched: dict[str, str], address: str) -> None:
    environ = dict(launched)
    rank_environment.export(environ)
    added = {**TORCHRUN, "SMDATAPARALLEL_LOCAL_RANK": "1", "MASTER_ADDR": address, "MASTER_PORT": "7777"}
    assert environ == {**launched, **added}


def test_what_is_there_stays(rank_environment: Any) -> None:
    environ = {**OPEN_MPI, "MASTER_ADDR": "10.0.0.1", "MASTER_PORT": "1234", "SMDATAPARALLEL_LOCAL_RANK": "5"}
    rank_environment.export(environ)
    assert environ["MASTER_ADDR"] == "10.0.0.1"
    assert environ["MASTER_PORT"] == "1234"
    assert environ["SMDATAPARALLEL_LOCAL_RANK"] == "5"


def test_two_launchers_are_not_mixed(rank_environment: Any) -> None:
    """mpirun inside of an allocation of Slurm's, whose own program was one task."""
    environ = {**OPEN_MPI, "SLURM_PROCID": "0", "SLURM_NTASKS": "1", "SLURM_LOCALID": "0", "RANK": ""}
    rank_environment.export(environ)
    assert {name: environ[name] for name in TORCHRUN} == TORCHRUN


@pytest.mark.parametrize(
    "different",
    [
        {"SLURM_STEP_ID": ""},  # the shell of a batch script
        {"SLURM_STEP_ID": "4294967290", "SLURM_STEP_NUM_TASKS": "1"},  # salloc's shell, on a node
        {"SLURM_STEP_NUM_TASKS": "1"},  # a batch script that was submitted from inside of a step
    ],
)
def test_a_shell_of_slurms_is_no_task_of_srun(rank_environment: Any, different: dict[str, str]) -> None:
    environ = {**SLURM, "SLURM_PROCID": "0", "SLURM_LOCALID": "0", **different}
    before = dict(environ)
    rank_environment.export(environ)
    assert environ == before


def test_no_launcher(rank_environment: Any) -> None:
    environ = {"SM_HOSTS": "not read"}
    rank_environment.export(environ)
    assert environ == {"SM_HOSTS": "not read"}


@pytest.mark.parametrize(("local_size", "address"), [("4", "127.0.0.1"), ("2", None)])
def test_the_loopback_is_for_one_host(rank_environment: Any, local_size: str, address: str | None) -> None:
    environ = {**OPEN_MPI, "OMPI_COMM_WORLD_LOCAL_SIZE": local_size}
    rank_environment.export(environ)
    assert environ.get("MASTER_ADDR") == address


@pytest.mark.parametrize("hosts", ["algo-1", '"algo-1"', "[1]"])
def test_hosts_that_cannot_be_read(rank_environment: Any, hosts: str) -> None:
    with pytest.raises(ValueError, match=r"SM_HOSTS=.*expected a JSON list of host names"):
        rank_environment.export({**OPEN_MPI, "SM_HOSTS": hosts})


@pytest.mark.parametrize("launched", [TORCHRUN, OPEN_MPI, HYDRA, SLURM])
def test_the_place_of_this_process(rank_environment: Any, launched: dict[str, str]) -> None:
    assert rank_environment.place({**launched, **HOSTS}) == (3, 4, 1, 2)
    assert rank_environment.place({"RANK": "3", "WORLD_SIZE": "4", "LOCAL_RANK": ""}) == (3, 4, 0, 1)
    assert rank_environment.place({}) == (0, 1, 0, 1)
    with pytest.raises(ValueError, match="LOCAL_RANK='first': expected a whole number"):
        rank_environment.place({**TORCHRUN, **HOSTS, "LOCAL_RANK": "first"})
