"""XGBoost's tracker under ``ranks``: where it runs, and what its ranks are told."""

from __future__ import annotations

from typing import Any

import pytest

from musterpoint.core.launch.plan import LaunchPlan

from .conftest import Planner, Values

XGBOOST = frozenset({"xgboost"})


def told(plan: LaunchPlan, values: Values, process: int) -> dict[str, str]:
    return {name: value for name, value in values(plan, process).items() if name.startswith("DMLC_")}


def test_the_leader_runs_the_tracker(plan: Planner, values: Values) -> None:
    """Ranks are sorted by their ids as texts, so all have as many digits."""
    slots = {"a": 6, "b": 6}
    leader, other = plan("ranks", slots, "a", modules=XGBOOST), plan("ranks", slots, "b", modules=XGBOOST)
    tracker, *ranks = leader.processes
    assert (tracker.role, tracker.users, tracker.optional, tracker.time_to_end) == ("service", False, True, 0)
    assert tracker.words == ["/usr/bin/python3", "{muster:xgboost_tracker}", "10.0.0.1", "7701", "12"]
    assert len(ranks) == 6 and all(process.role == "rank" for process in (*ranks, *other.processes))
    same = {"DMLC_TRACKER_URI": "10.0.0.1", "DMLC_TRACKER_PORT": "7701", "DMLC_NUM_WORKER": "12"}
    assert told(leader, values, 1) == {**same, "DMLC_TASK_ID": "00"}
    assert told(other, values, 5) == {**same, "DMLC_TASK_ID": "11"}


def test_beside_horovod_it_has_a_port_of_its_own(plan: Planner, values: Values) -> None:
    made = plan("ranks", {"a": 1, "b": 1}, "a", modules=XGBOOST | {"horovod"})
    assert [process.name for process in made.processes] == [
        "Horovod's rendezvous server",
        "XGBoost's tracker",
        "rank 0",
    ]
    rank = values(made, 2)
    assert (rank["HOROVOD_GLOO_RENDEZVOUS_PORT"], rank["DMLC_TRACKER_PORT"]) == ("7701", "7801")


@pytest.mark.parametrize(
    ("slots", "settings"),
    [
        ({"a": 1}, {"modules": XGBOOST}),
        ({"a": 1, "b": 1}, {}),
        ({"a": 1, "b": 1}, {"modules": XGBOOST, "environ": {"DMLC_TRACKER_URI": "10.9.9.9", "DMLC_TASK_ID": "4"}}),
    ],
    ids=["one rank", "no XGBoost", "a tracker of the user's own"],
)
def test_nothing_is_set_where_it_would_be_wrong(
    plan: Planner, values: Values, slots: dict[str, int], settings: dict[str, Any]
) -> None:
    made = plan("ranks", slots, "a", **settings)
    assert not told(made, values, 0)
    assert [process.role for process in made.processes] == ["rank"]
