"""Every rank started by this host's supervisor."""

from __future__ import annotations

from musterpoint.core.launch.launchers.ranks import IDENTITY

from .conftest import Planner, Values


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
