"""The program once per host."""

from __future__ import annotations

from musterpoint.core.fabric.devices import Devices
from musterpoint.core.launch.inputs import STANDINS, STARTUP
from musterpoint.core.launch.launchers.ranks import IDENTITY

from .conftest import Planner, Values


def test_one_host_runs_the_program_and_nothing_else(plan: Planner, values: Values) -> None:
    made = plan("script", {"algo-1": 1})
    (process,) = made.processes
    assert process.words == ["/usr/bin/python3", "train.py", "--lr", "0.1"]
    assert (process.role, process.rank, process.local_rank, process.cwd) == ("rank", 0, 0, "/opt/ml/code")
    assert values(made) == {
        "MUSTER_ATTEMPT": "0", "MUSTER_STARTUP": "exceptions", "PYTHONFAULTHANDLER": "1",
        "PYTHONPATH": f"{STARTUP}:/opt/ml/code:{STANDINS}", "PYTHONUNBUFFERED": "1", "TORCHELASTIC_RESTART_COUNT": "0",
        "TORCH_ELASTIC_SHUTDOWN_TIMEOUT": "25",
    }  # fmt: skip
    assert (made.local_ranks, made.world_size, made.first_rank) == (1, 1, 0)
    assert made.independent
    assert not made.unset


def test_several_hosts_learn_where_to_meet_but_not_that_they_are_ranks(plan: Planner, values: Values) -> None:
    made = plan("script", {"algo-1": 1, "algo-2": 1}, "algo-2", devices=Devices(cpus=96, gpus=8))
    got = values(made)
    meeting = {"MASTER_ADDR": "10.0.0.1", "MASTER_PORT": "7777", "NODE_RANK": "1", "NNODES": "2", "NPROC_PER_NODE": "8"}
    assert meeting.items() <= got.items()
    assert not {"RANK", "LOCAL_RANK", "WORLD_SIZE"} & set(got)
    assert "OMP_NUM_THREADS" not in got, "one process has all processors"
    assert (made.processes[0].rank, made.world_size) == (1, 2)


def test_what_the_user_set_stays(plan: Planner, values: Values) -> None:
    environ = {"OMP_NUM_THREADS": "3", "PYTHONUNBUFFERED": "", "MASTER_PORT": "29500", "PYTHONPATH": "/lib/mine"}
    made = plan("script", {"a": 1, "b": 1}, "a", environ=environ, exports=(("SM_HOSTS", "[]"), ("MASTER_ADDR", "a")))
    got = values(made)
    assert not {"OMP_NUM_THREADS", "PYTHONUNBUFFERED", "MASTER_PORT"} & set(got)
    assert got["PYTHONPATH"] == f"{STARTUP}:/opt/ml/code:/lib/mine:{STANDINS}"
    assert got["SM_HOSTS"] == "[]"
    assert got["MASTER_ADDR"] == "10.0.0.1", "the roster knows better than the platform's variables"


def test_a_host_outside_the_group_runs_the_program_under_any_launcher(plan: Planner, values: Values) -> None:
    made = plan("torchrun", {"algo-1": 2, "algo-2": 2, "algo-3": 0}, "algo-3", outside=("algo-3",))
    assert made.launcher == "script"
    assert made.processes[0].rank == 4, "numbered after the group's ranks"
    assert not {"MASTER_ADDR", "NODE_RANK"} & set(values(made))


def test_each_rank_knows_its_place_on_uneven_hosts(plan: Planner, values: Values) -> None:
    made = plan("ranks", {"algo-1": 1, "algo-2": 2, "algo-3": 1}, "algo-2")
    assert [process.words for process in made.processes] == [["/usr/bin/python3", "train.py", "--lr", "0.1"]] * 2
    assert [(process.rank, process.local_rank) for process in made.processes] == [(1, 0), (2, 1)]
    got = values(made, 1)
    assert {name: got[name] for name in IDENTITY} == {
        "RANK": "2", "LOCAL_RANK": "1", "WORLD_SIZE": "4", "LOCAL_WORLD_SIZE": "2", "NODE_RANK": "1", "GROUP_RANK": "1",
        "MASTER_ADDR": "10.0.0.1", "MASTER_PORT": "7777",
    }  # fmt: skip
    assert got["OMP_NUM_THREADS"] == "4"
    assert (made.local_ranks, made.first_rank, made.world_size) == (2, 1, 4)
    assert not made.independent
    assert not [name for name in got if "VISIBLE" in name], "no rank is kept from a device"


def test_an_identity_from_another_world_is_replaced(plan: Planner, values: Values) -> None:
    stale = dict.fromkeys(IDENTITY, "9")
    got = values(plan("ranks", {"a": 1, "b": 1}, "b", environ=stale, exports=(("MASTER_ADDR", "a"),)))
    assert (got["RANK"], got["WORLD_SIZE"], got["MASTER_ADDR"]) == ("1", "2", "10.0.0.1")
