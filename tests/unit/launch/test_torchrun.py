"""torchrun's argv, word for word; tests/hosts/test_torchrun_flags.py gives them to the real one."""

from __future__ import annotations

from typing import Callable

import pytest

from musterpoint.launch.inputs import STANDINS
from musterpoint.launch.plan import LaunchPlan
from musterpoint.launch.stub import BOOT

Planner = Callable[..., LaunchPlan]
Values = Callable[..., dict[str, str]]

START = ["/usr/bin/python3", "-m", "torch.distributed.run"]
END = [
    "--rdzv-id=digits", "--max-restarts=0", "--no-python",
    "/usr/bin/python3", "-I", "-S", "-c", BOOT, "--", "/usr/bin/python3", "train.py", "--lr", "0.1",
]  # fmt: skip


@pytest.mark.parametrize(
    ("slots", "me", "addresses", "settings", "flags"),
    [
        (
            {"laptop": 2}, "laptop", "10.0.0.", {},
            ["--nnodes=1", "--nproc-per-node=2", "--rdzv-backend=static", "--node-rank=0", "--master-addr=127.0.0.1",
             "--master-port=7777", "--local-addr=127.0.0.1"],
        ),
        (
            {"algo-1": 8, "algo-2": 8}, "algo-2", "10.0.0.", {},
            ["--nnodes=2", "--nproc-per-node=8", "--rdzv-backend=static", "--node-rank=1", "--master-addr=10.0.0.1",
             "--master-port=7777", "--local-addr=10.0.0.2"],
        ),
        (
            {"algo-1": 1, "algo-2": 4}, "algo-1", "fd00::", {},
            ["--nnodes=2", "--nproc-per-node=1", "--rdzv-backend=static", "--node-rank=0", "--master-addr=[fd00::1]",
             "--master-port=7777", "--local-addr=fd00::1"],
        ),
        (
            {"algo-1": 2, "algo-2": 2}, "algo-1", "10.0.0.", {"rendezvous": "c10d"},
            ["--nnodes=2", "--nproc-per-node=2", "--rdzv-backend=c10d", "--rdzv-endpoint=10.0.0.1:7777",
             "--rdzv-conf=is_host=true", "--local-addr=10.0.0.1"],
        ),
        (
            {"algo-1": 2, "algo-2": 2}, "algo-2", "fd00::", {"rendezvous": "c10d"},
            ["--nnodes=2", "--nproc-per-node=2", "--rdzv-backend=c10d", "--rdzv-endpoint=[fd00::1]:7777",
             "--rdzv-conf=is_host=false", "--local-addr=fd00::2"],
        ),
    ],
    ids=["one host", "second of two", "IPv6, uneven", "c10d leader", "c10d IPv6"],
)  # fmt: skip
def test_golden_argv(
    plan: Planner, slots: dict[str, int], me: str, addresses: str, settings: dict[str, str], flags: list[str]
) -> None:
    made = plan("torchrun", slots, me, addresses=addresses, **settings)
    (agent,) = made.processes
    assert agent.words == [*START, *flags, *END]
    assert (agent.role, agent.cwd, agent.rank) == ("launcher", "/", None)
    assert all(argument.reason for argument in agent.argv if argument.text.startswith("-") and argument.text != "--lr")


def test_the_agent_is_kept_from_the_users_modules(plan: Planner, values: Values) -> None:
    made = plan("torchrun", {"a": 1, "b": 2}, "b", environ={"PYTHONPATH": "/mine", "PET_STANDALONE": "1"})
    got = values(made)
    assert "PYTHONPATH" not in got
    assert got["NODE_RANK"] == "1"
    assert made.unset == ("PYTHONPATH", "PET_STANDALONE")
    assert (made.user_cwd, made.user_pythonpath) == ("/opt/ml/code", f"/opt/ml/code:/mine:{STANDINS}")
    assert (made.local_ranks, made.first_rank, made.world_size) == (2, 1, 3)


def test_threads_are_shared_by_this_hosts_ranks(plan: Planner, values: Values) -> None:
    assert values(plan("torchrun", {"a": 1, "b": 3}, "b"))["OMP_NUM_THREADS"] == "2"
    assert values(plan("torchrun", {"a": 16}))["OMP_NUM_THREADS"] == "1"


def test_c10d_on_several_hosts_says_that_order_is_not_kept(plan: Planner) -> None:
    (note,) = plan("torchrun", {"a": 1, "b": 1}, "a", rendezvous="c10d").notes
    assert "order" in note
    assert not plan("torchrun", {"a": 1, "b": 1}, "a").notes
