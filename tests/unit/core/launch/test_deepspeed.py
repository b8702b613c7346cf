"""DeepSpeed's per-node launcher, word for word; tests/hosts/stacks/test_deepspeed.py runs it."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from musterpoint.core.code.workspace import Workspace
from musterpoint.core.launch.inputs import STANDINS, STARTUP
from musterpoint.core.launch.launch_plan import BOOT, LaunchPlan

from .conftest import Planner, Values

PROGRAM = ["/usr/bin/python3", "-I", "-S", "-c", BOOT, "--", "/usr/bin/python3", "train.py", "--lr", "0.1"]


def world(plan: LaunchPlan) -> dict[str, list[Any]]:
    """What the launcher reads from --world_info."""
    (word,) = [word for word in plan.processes[0].words if word.startswith("--world_info=")]
    found: dict[str, list[Any]] = json.loads(base64.urlsafe_b64decode(word.partition("=")[2]))
    return found


@pytest.mark.parametrize(
    ("slots", "me", "addresses", "flags"),
    [
        ({"laptop": 2}, "laptop", "10.0.0.",
         ["--world_info=eyJsYXB0b3AiOiBbMCwgMV19", "--node_rank=0", "--master_addr=127.0.0.1"]),
        ({"algo-1": 1, "algo-2": 1}, "algo-2", "10.0.0.",
         ["--world_info=eyJhbGdvLTEiOiBbMF0sICJhbGdvLTIiOiBbMF19", "--node_rank=1", "--master_addr=10.0.0.1"]),
        ({"algo-1": 1, "algo-2": 1}, "algo-1", "fd00::",
         ["--world_info=eyJhbGdvLTEiOiBbMF0sICJhbGdvLTIiOiBbMF19", "--node_rank=0", "--master_addr=fd00::1"]),
    ],
    ids=["one host", "second of two", "IPv6"],
)  # fmt: skip
def test_golden_argv(plan: Planner, slots: dict[str, int], me: str, addresses: str, flags: list[str]) -> None:
    made = plan("deepspeed", slots, me, addresses=addresses)
    (launcher,) = made.processes
    assert launcher.words == [
        "/usr/bin/python3", "-m", "deepspeed.launcher.launch", *flags, "--master_port=7777", "--no_python",
        "--no_local_rank", *PROGRAM,
    ]  # fmt: skip
    assert (launcher.role, launcher.cwd, launcher.rank) == ("launcher", "/", None)
    assert all(word.reason for word in launcher.argv if word.text.startswith("-") and word.text != "--lr")


def test_hosts_are_in_rank_order_each_with_its_slots(plan: Planner) -> None:
    made = plan("deepspeed", {"algo-2": 2, "algo-10": 3, "algo-11": 1}, "algo-10")
    assert list(world(made).items()) == [("algo-2", [0, 1]), ("algo-10", [0, 1, 2]), ("algo-11", [0])]
    assert (made.local_ranks, made.first_rank, made.world_size) == (3, 2, 6)
    assert made.foreign


@pytest.mark.parametrize(
    ("visible", "ids"),
    [
        ("", [-1, -1]),
        ("-1", ["-1", -1]),
        ("3", [3, -1]),
        ("4, 6", [4, 6]),
        ("4,6,7", [4, 6]),
        ("GPU-5ebe9f43,MIG-7", ["GPU-5ebe9f43", "MIG-7"]),
    ],
)
def test_visible_devices_stay_what_the_user_said(plan: Planner, visible: str, ids: list[Any]) -> None:
    made = plan("deepspeed", {"a": 2, "b": 2}, "b", environ={"CUDA_VISIBLE_DEVICES": visible})
    assert world(made) == {"a": [0, 1], "b": ids}


def test_the_launcher_is_kept_from_the_users_modules(plan: Planner, values: Values) -> None:
    stale = {"PYTHONPATH": "/mine", "OMPI_COMM_WORLD_LOCAL_RANK": "0", "NODE_RANK": "7", "LOCAL_WORLD_SIZE": "9"}
    made = plan("deepspeed", {"a": 1, "b": 2}, "b", environ=stale)
    got = values(made)
    assert "PYTHONPATH" not in got
    assert (got["NODE_RANK"], got["GROUP_RANK"], got["LOCAL_WORLD_SIZE"]) == ("1", "1", "2")
    assert made.unset == ("PYTHONPATH", "OMPI_COMM_WORLD_LOCAL_RANK")
    assert (made.user_cwd, made.user_pythonpath) == ("/opt/ml/code", f"{STARTUP}:/opt/ml/code:/mine:{STANDINS}")


@pytest.mark.parametrize(
    ("kind", "argv", "at"),
    [
        ("python", ("/usr/bin/python3", "train.py", "--lr", "1"), 2),
        ("module", ("/usr/bin/python3", "-m", "pkg.train", "--lr", "1"), 3),
        ("shell", ("/bin/sh", "./train.sh", "--lr", "1"), -1),
        ("executable", ("./train", "--lr", "1"), -1),
    ],
)
def test_local_rank_is_put_where_deepspeed_puts_it(plan: Planner, kind: str, argv: tuple[str, ...], at: int) -> None:
    workspace = Workspace(kind, argv[-3], argv, "/opt/ml/code", "/usr/bin/python3", ("/opt/ml/code",))
    assert plan("deepspeed", {"a": 2}, workspace=workspace).local_rank_at == at
    assert plan("deepspeed", {"a": 2}, workspace=workspace, local_rank="variable").local_rank_at == -1


def test_slots_of_uneven_hosts_are_numbered_from_the_first(plan: Planner, values: Values) -> None:
    assert values(plan("deepspeed", {"a": 1, "b": 2}, "b"))["MUSTER_FIRST_RANK"] == "1"
    for even in (plan("deepspeed", {"a": 2, "b": 2}, "b"), plan("deepspeed", {"a": 1, "b": 2}, "a")):
        assert "MUSTER_FIRST_RANK" not in values(even)


def test_ranks_are_started_again_without_its_launcher(plan: Planner, values: Values) -> None:
    """It would import torch for seconds; tests/hosts/stacks/test_deepspeed.py compares what ranks see."""
    made = plan("deepspeed", {"a": 1, "b": 2}, "b", attempt=1, environ={"CUDA_VISIBLE_DEVICES": "3,1"})
    assert [(process.role, process.rank, process.local_rank) for process in made.processes] == [
        ("rank", 1, 0), ("rank", 2, 1),
    ]  # fmt: skip
    assert made.processes[1].words == ["/usr/bin/python3", "train.py", "--local_rank=1", "--lr", "0.1"]
    got = values(made, 1)
    assert (got["CUDA_VISIBLE_DEVICES"], got["LOCAL_SIZE"], got["CROSS_RANK"], got["CROSS_SIZE"]) == (
        "3,1", "2", "1", "2",
    )  # fmt: skip
    other = plan("deepspeed", {"a": 2}, attempt=1, environ={"DS_ACCELERATOR": "npu"})
    assert other.foreign, "it gives its ranks another variable"
