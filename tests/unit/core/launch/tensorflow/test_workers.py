"""``tensorflow``: one worker per host, and whose TF_CONFIG it gets."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ..conftest import Planner, Values
from .test_parameter_server import PROGRAM, TWO, tf_config


@pytest.mark.parametrize("me", TWO)
def test_every_host_is_a_worker_in_rank_order(plan: Planner, values: Values, me: str) -> None:
    made = plan("tensorflow", TWO, me)
    (process,) = made.processes
    rank = list(TWO).index(me)
    assert process.words == PROGRAM
    assert (process.role, process.name, process.rank, process.local_rank) == ("rank", f"rank {rank}", rank, 0)
    assert (process.cwd, made.world_size, made.local_ranks, made.first_rank) == ("/opt/ml/code", 2, 1, rank)
    assert tf_config(values(made)) == {
        "cluster": {"worker": ["10.0.0.1:7701", "10.0.0.2:7702"]},
        "task": {"type": "worker", "index": rank},
        "environment": "cloud",
    }
    assert not made.independent
    assert not {"RANK", "LOCAL_RANK", "WORLD_SIZE"} & {*values(made)}


@pytest.mark.parametrize(
    ("slots", "options", "workers"),
    [
        (TWO, {"addresses": "fd00::"}, ["[fd00::1]:7701", "[fd00::2]:7702"]),
        (TWO, {"tf_hosts": "names"}, ["algo-1:7701", "algo-2:7702"]),
        ({"a": 1}, {"tf_port": 7777}, ["127.0.0.1:7701"]),
    ],
)
def test_addresses(
    plan: Planner, values: Values, slots: dict[str, int], options: dict[str, Any], workers: list[str]
) -> None:
    assert tf_config(values(plan("tensorflow", slots, **options)))["cluster"] == {"worker": workers}


def test_hosts_outside_the_group_are_no_workers(plan: Planner, values: Values) -> None:
    hosts = {"a": 1, "b": 1, "data": 1}
    assert len(tf_config(values(plan("tensorflow", hosts, "b", outside=("data",))))["cluster"]["worker"]) == 2
    assert plan("tensorflow", hosts, "data", outside=("data",)).launcher == "script"


def test_a_port_that_was_taken_is_told_once(plan: Planner) -> None:
    first, second = (plan("tensorflow", TWO, host) for host in TWO)
    assert first.notes == (
        "port 7777 is taken on algo-1: its TensorFlow server listens on 7701",
        "port 7777 is taken on algo-2: its TensorFlow server listens on 7702",
    )
    assert second.notes == ()
    assert plan("tensorflow", TWO, tf_port=0).notes == ()


def test_one_host_gets_none_unless_asked(plan: Planner, values: Values) -> None:
    alone = plan("tensorflow", {"a": 1})
    assert "TF_CONFIG" not in values(alone)
    assert "--tf-port" in alone.notes[0]


@pytest.mark.parametrize("role", ["worker", "chief", "master"])
def test_what_was_set_already_is_kept(plan: Planner, values: Values, role: str) -> None:
    own = json.dumps({"cluster": {role: ["x:1"]}, "task": {"type": role, "index": 0}})
    made = plan("tensorflow", TWO, "algo-2", environ={"TF_CONFIG": own})
    assert "TF_CONFIG" not in values(made)
    assert made.notes == (f"TF_CONFIG was set already and is kept: algo-2 is {role} 0",)
    assert made.processes[0].role == "rank"


@pytest.mark.parametrize("role", ["ps", "evaluator"])
def test_a_host_that_serves_by_it_runs_the_program_as_a_service(plan: Planner, role: str) -> None:
    own = json.dumps({"cluster": {"worker": ["x:1"]}, "task": {"type": role, "index": 0}})
    made = plan("tensorflow", {"algo-1": 1, "algo-2": 0}, "algo-2", environ={"TF_CONFIG": own})
    (process,) = made.processes
    assert (process.role, process.name, process.users) == ("service", f"{role} 0", True)
    assert process.words == PROGRAM
    assert (made.local_ranks, made.world_size) == (0, 1)
