"""``parameter-server``: every process of both layouts, with its TF_CONFIG."""

from __future__ import annotations

import json
from typing import Any

from musterpoint.core.launch.launch_plan import LaunchPlan

from ..conftest import Planner, Values

TWO = {"algo-1": 1, "algo-2": 1}
PROGRAM = ["/usr/bin/python3", "train.py", "--lr", "0.1"]
SERVER = ["/usr/bin/python3", "{muster:tensorflow_server}"]


def shape(made: LaunchPlan) -> list[tuple[str, str, bool]]:
    return [(process.role, process.name, process.users) for process in made.processes]


def tf_config(got: dict[str, str]) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(got["TF_CONFIG"])
    return found


def test_sagemakers_layout(plan: Planner, values: Values) -> None:
    first, second = (plan("parameter-server", TWO, host) for host in TWO)
    assert shape(first) == [("rank", "rank 0", False), ("service", "ps 0", False)]
    assert shape(second) == [("rank", "rank 1", False), ("service", "ps 1", False)]
    assert [process.words for process in second.processes] == [PROGRAM, SERVER]
    assert (second.world_size, second.local_ranks, second.first_rank) == (2, 1, 1)
    cluster = {"master": ["10.0.0.1:7701"], "worker": ["10.0.0.2:7702"], "ps": ["10.0.0.1:7801", "10.0.0.2:7802"]}
    for made, at, task in [(first, 0, ("master", 0)), (second, 0, ("worker", 0)), (second, 1, ("ps", 1))]:
        config = tf_config(values(made, at))
        assert config["cluster"] == cluster
        assert (config["task"]["type"], config["task"]["index"]) == task
        assert config["environment"] == "cloud"


def test_parameter_servers_run_on_the_cpu_alone(plan: Planner, values: Values) -> None:
    made = plan("parameter-server", TWO, environ={"CUDA_VISIBLE_DEVICES": "0,1"})
    assert "CUDA_VISIBLE_DEVICES" not in values(made, 0)
    assert values(made, 1)["CUDA_VISIBLE_DEVICES"] == ""


def test_servers_of_ours_keep_quiet_unless_told(plan: Planner, values: Values) -> None:
    assert values(plan("parameter-server", TWO), 1)["TF_CPP_MIN_LOG_LEVEL"] == "1"
    made = plan("parameter-server", TWO, environ={"TF_CPP_MIN_LOG_LEVEL": "0"})
    assert all("TF_CPP_MIN_LOG_LEVEL" not in values(made, at) for at in (0, 1))


def test_the_counted_layout(plan: Planner, values: Values) -> None:
    roles = "worker=2,ps=1,evaluator=1"
    three = {"algo-1": 1, "algo-2": 0, "algo-3": 0}
    plans = [plan("parameter-server", three, host, tf_roles=roles) for host in three]
    assert [shape(made) for made in plans] == [
        [("rank", "rank 0", False), ("service", "ps 0", False)],
        [("service", "worker 0", False), ("service", "evaluator 0", True)],
        [("service", "worker 1", False)],
    ]
    assert [(made.world_size, made.local_ranks, made.first_rank) for made in plans] == [(1, 1, 0), (1, 0, 1), (1, 0, 1)]
    chief, evaluator = tf_config(values(plans[0])), tf_config(values(plans[1], 1))
    assert chief["task"] == {"type": "chief", "index": 0}
    assert chief["cluster"] == evaluator["cluster"] == {
        "chief": ["10.0.0.1:7701"],
        "worker": ["10.0.0.2:7702", "10.0.0.3:7703"],
        "ps": ["10.0.0.1:7801"],
    }  # fmt: skip
    assert evaluator["task"] == {"type": "evaluator", "index": 0}
    assert plans[1].processes[1].words == PROGRAM
    assert plans[2].processes[0].words == SERVER


def test_workers_have_the_gpus_of_a_host_that_they_share(plan: Planner, values: Values) -> None:
    def hidden(made: LaunchPlan, at: int) -> bool:
        return values(made, at).get("CUDA_VISIBLE_DEVICES") == ""

    shared = plan("parameter-server", {"a": 1}, tf_roles="worker=1,ps=1,evaluator=1")
    assert [process.name for process in shared.processes] == ["rank 0", "worker 0", "ps 0", "evaluator 0"]
    assert [hidden(shared, at) for at in range(4)] == [True, False, True, True]
    beside = plan("parameter-server", {"a": 1, "b": 0}, "a", tf_roles="worker=1,ps=1,evaluator=1")
    assert [process.name for process in beside.processes] == ["rank 0", "ps 0"]
    apart = plan("parameter-server", {"a": 1, "b": 0}, "a", tf_roles="worker=1,ps=1")
    assert [hidden(apart, at) for at in range(2)] == [False, True]
    own = plan("parameter-server", {"a": 1}, tf_roles="worker=1,ps=1", environ={"CUDA_VISIBLE_DEVICES": "1"})
    assert [hidden(own, at) for at in range(3)] == [False, False, True]


def test_who_runs_where_is_told_once(plan: Planner) -> None:
    first, second = (plan("parameter-server", TWO, host, tf_port=0) for host in TWO)
    assert first.notes == ("tasks: master 0 on algo-1, worker 0 on algo-2, ps 0 on algo-1, ps 1 on algo-2",)
    assert second.notes == ()
    many = plan("parameter-server", {f"algo-{number}": 1 for number in range(1, 101)}, tf_port=0)
    assert many.notes[0].endswith(", worker 30 on algo-32, and 168 more")
    assert "port 2222 is taken on algo-1: its TensorFlow server listens on 7701" in plan("parameter-server", TWO).notes


def test_one_host_needs_none_of_it_unless_asked(plan: Planner, values: Values) -> None:
    alone = plan("parameter-server", {"a": 1})
    assert shape(alone) == [("rank", "rank 0", False)]
    assert "TF_CONFIG" not in values(alone)
    assert "--tf-port" in alone.notes[0]
    asked = plan("parameter-server", {"a": 1}, tf_port=2222)
    assert tf_config(values(asked))["cluster"] == {"master": ["127.0.0.1:7701"], "ps": ["127.0.0.1:7801"]}


def test_more_tasks_than_offered_ports_take_the_next_ones(plan: Planner, values: Values) -> None:
    crowded = plan("parameter-server", {"a": 1}, tf_roles="worker=2,ps=1", tf_port=4000)
    assert tf_config(values(crowded))["cluster"] == {
        "chief": ["127.0.0.1:7701"], "worker": ["127.0.0.1:7801", "127.0.0.1:4002"], "ps": ["127.0.0.1:4003"],
    }  # fmt: skip


def test_what_was_set_already_is_kept(plan: Planner) -> None:
    own = json.dumps({"cluster": {"worker": ["x:1"], "ps": ["y:1"]}, "task": {"type": "ps", "index": 3}})
    made = plan("parameter-server", {"a": 1, "b": 0}, "b", environ={"TF_CONFIG": own})
    assert shape(made) == [("service", "ps 3", True)]
    assert made.processes[0].words == PROGRAM
    assert made.notes == ("TF_CONFIG was set already and is kept: b is ps 3",)
