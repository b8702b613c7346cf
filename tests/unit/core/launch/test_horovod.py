"""Horovod without MPI: the variables of its ranks on even and uneven hosts, and when there are none."""

from __future__ import annotations

from typing import Any

import pytest

from musterpoint.base.settings import Settings
from musterpoint.core.code.workspace import Workspace
from musterpoint.core.fabric.devices import Devices
from musterpoint.core.fabric.setting import EnvSetting
from musterpoint.core.job.model import EntryPoint, Job
from musterpoint.core.launch.horovod import AUTOTUNE_NOTE, IPV6_NOTE, notes, plan_gloo
from musterpoint.core.launch.inputs import LaunchInputs
from musterpoint.core.launch.launch_plan import LaunchPlan, ProcessPlan
from musterpoint.core.launch.launchers import find_launcher
from musterpoint.core.rollcall.roster import Roster, Seat

from .conftest import Planner, Values

HOROVOD = frozenset({"horovod"})


def horovod_of(plan: LaunchPlan) -> dict[str, str]:
    """The plan's own variables for Horovod, without those of single ranks."""
    return {name: value for name, value, _reason, _ours in plan.environment if name.startswith("HOROVOD_")}


def ranks_of(plan: LaunchPlan) -> list[ProcessPlan]:
    return [process for process in plan.processes if process.role == "rank"]


def identity(process: ProcessPlan) -> dict[str, str]:
    return {name: value for name, value, _reason, _ours in process.environment if name.startswith("HOROVOD_")}


def test_the_leader_serves_and_all_are_told_where(plan: Planner, values: Values) -> None:
    network = (EnvSetting("GLOO_SOCKET_IFNAME", "eth1", "the interface"),)
    expected = {
        "HOROVOD_CONTROLLER": "gloo", "HOROVOD_CPU_OPERATIONS": "gloo", "HOROVOD_GLOO_RENDEZVOUS_ADDR": "10.0.0.1",
        "HOROVOD_GLOO_RENDEZVOUS_PORT": "7701", "HOROVOD_GLOO_IFACE": "eth1",
    }  # fmt: skip
    for me in ("algo-1", "algo-2"):
        made = plan("ranks", {"algo-1": 2, "algo-2": 2}, me, modules=HOROVOD, network=network)
        assert horovod_of(made) == expected
        values(made, -1)  # every reason is there, no name twice
    leader = plan("ranks", {"algo-1": 2, "algo-2": 2}, "algo-1", modules=HOROVOD)
    server, *ranks = leader.processes
    assert (server.role, server.users, server.rank, server.cwd) == ("service", False, None, ranks[0].cwd)
    assert server.words == ["/usr/bin/python3", "{muster:horovod_rendezvous}", "7701", "10.0.0.1"]
    assert [rank.role for rank in ranks] == ["rank", "rank"]
    assert all(process.role == "rank" for process in made.processes), "a worker serves nothing"


def test_without_an_offered_port_it_is_the_one_beside_the_master_port() -> None:
    job = Job("plain", "digits", ("a", "b"), "a", ("a", "b"), EntryPoint("train.py"))
    workspace = Workspace("python", "train.py", ("python", "train.py"), "/", "python")
    roster = Roster("digits", "", (Seat("a", "10.0.0.1", 1), Seat("b", "10.0.0.2", 1)), "10.0.0.1", 7777, "a")
    inputs = LaunchInputs(find_launcher("ranks"), job, workspace, roster, Devices(), Settings(), {}, modules=HOROVOD)
    assert plan_gloo(inputs).services[0].words[-2:] == ["7778", "10.0.0.1"]


SLOTS = {"a": 1, "b": 3, "c": 2}
UNEVEN = {
    # host: rank, local rank, local size, cross rank, cross size, as horovod.runner.common.util.hosts assigns them
    "a": [(0, 0, 1, 0, 3)],
    "b": [(1, 0, 3, 1, 3), (2, 1, 3, 0, 2), (3, 2, 3, 0, 1)],
    "c": [(4, 0, 2, 2, 3), (5, 1, 2, 1, 2)],
}


@pytest.mark.parametrize("me", SLOTS)
def test_every_rank_has_its_place_on_uneven_hosts(plan: Planner, me: str) -> None:
    made = plan("ranks", SLOTS, me, modules=HOROVOD, environ={"HOROVOD_RANK": "9", "HOROVOD_HOSTNAME": "elsewhere"})
    names = ("RANK", "LOCAL_RANK", "LOCAL_SIZE", "CROSS_RANK", "CROSS_SIZE")
    for process, expected in zip(ranks_of(made), UNEVEN[me], strict=True):
        got = identity(process)
        assert got.pop("HOROVOD_HOSTNAME") == me
        assert got.pop("HOROVOD_SIZE") == "6"
        assert tuple(int(got.pop(f"HOROVOD_{name}")) for name in names) == expected
        assert not got


def test_one_host_meets_on_the_loopback(plan: Planner) -> None:
    made = plan("ranks", {"laptop": 2}, modules=HOROVOD)
    assert made.processes[0].words[-1] == "127.0.0.1"
    assert horovod_of(made)["HOROVOD_GLOO_IFACE"] == "lo"


def test_what_the_user_set_stays(plan: Planner) -> None:
    mine = {
        "HOROVOD_CPU_OPERATIONS": "mpi", "HOROVOD_GLOO_IFACE": "ib0", "GLOO_SOCKET_IFNAME": "eth0,eth1",
        "HOROVOD_GLOO_RENDEZVOUS_ADDR": "10.9.9.9", "HOROVOD_FUSION_THRESHOLD": "1",
    }  # fmt: skip
    made = plan("ranks", {"a": 1, "b": 1}, "a", modules=HOROVOD, environ=mine)
    assert set(horovod_of(made)) == {"HOROVOD_CONTROLLER", "HOROVOD_GLOO_RENDEZVOUS_PORT"}
    assert len(made.processes) == 1, "the user's own server is there already"
    del mine["HOROVOD_GLOO_IFACE"]
    again = plan("ranks", {"a": 1, "b": 1}, "b", modules=HOROVOD, environ=mine)
    assert horovod_of(again)["HOROVOD_GLOO_IFACE"] == "eth0"


@pytest.mark.parametrize(
    ("slots", "settings"),
    [
        ({"a": 1}, {"modules": HOROVOD}),
        ({"a": 1, "b": 1}, {}),
        ({"a": 1, "b": 1}, {"modules": HOROVOD, "environ": {"HOROVOD_CONTROLLER": "MPI"}}),
        ({"a": 1, "b": 1}, {"modules": HOROVOD, "addresses": "fd00::"}),
    ],
    ids=["one rank", "no Horovod", "another controller", "IPv6"],
)
def test_nothing_is_set_where_it_would_be_wrong(
    plan: Planner, slots: dict[str, int], settings: dict[str, object]
) -> None:
    made = plan("ranks", slots, "a", **settings)
    assert not horovod_of(made)
    assert not any(identity(process) for process in made.processes)
    assert all(process.role == "rank" for process in made.processes)
    assert made.notes == ((IPV6_NOTE,) if "addresses" in settings else ())


@pytest.mark.parametrize(("value", "on"), [("1", True), ("0", False), ("00", False), ("true", False), ("", False),
                                           (" +2x", True), ("-1", False)])  # fmt: skip
def test_autotune_is_noticed_as_horovod_reads_it(plan: Planner, value: str, on: bool) -> None:
    environ = {"HOROVOD_AUTOTUNE": value}
    assert notes(environ) == ((AUTOTUNE_NOTE,) if on else ())
    assert plan("ranks", {"a": 1, "b": 1}, "b", modules=HOROVOD, environ=environ).notes == notes(environ)
    assert notes({}) == ()


@pytest.mark.parametrize(
    ("seconds", "environ", "expected"),
    [
        (None, {}, None),
        (600.0, {}, "1260"),
        (600.0, {"HOROVOD_STALL_CHECK_DISABLE": "1"}, None),
        (600.0, {"HOROVOD_STALL_SHUTDOWN_TIME_SECONDS": "90"}, None),
    ],
)
def test_its_warnings_come_after_our_look_at_silent_ranks(
    plan: Planner, seconds: float | None, environ: dict[str, str], expected: str | None
) -> None:
    made = plan("ranks", {"algo-1": 2}, "algo-1", modules=HOROVOD, stall_timeout=seconds, environ=environ)
    assert horovod_of(made).get("HOROVOD_STALL_CHECK_TIME_SECONDS") == expected


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
def test_xgboost_gets_nothing_where_it_would_be_wrong(
    plan: Planner, values: Values, slots: dict[str, int], settings: dict[str, Any]
) -> None:
    made = plan("ranks", slots, "a", **settings)
    assert not told(made, values, 0)
    assert [process.role for process in made.processes] == ["rank"]
