"""XGBoost on two hosts: its ranks meet at the tracker that the leader runs, and the one that fails is the reason."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from .conftest import trained

PROGRAM = Path(__file__).parent / "programs" / "xgboost_digits.py"
TWO = ("--hosts", "2", "--backend", "netns", "--launcher", "ranks")

pytestmark = [pytest.mark.netns, pytest.mark.timeout(300)]


@pytest.fixture
def xgboost(local, stack):  # type: ignore[no-untyped-def]
    local.environ |= {"MUSTER_PYTHON": str(stack("xgboost") / "python"), "PYTHONHASHSEED": "0"}
    return local


def test_one_model_from_all_shards(xgboost, digits: Path) -> None:  # type: ignore[no-untyped-def]
    ran = xgboost.run(*TWO, "--host-slots", "1,2", PROGRAM, digits)
    assert ran.code == 0, ran.stderr + ran.stdout
    assert sorted(trained(ran)) == [0, 1, 2]
    assert all(f"rank {rank} of 3 is task {rank}, {rank}" in ran.stdout for rank in range(3))
    assert len(set(re.findall(r"trees (-?\d+)", ran.stdout))) == 1
    assert "Retrying connection" not in ran.log("algo-1") + ran.log("algo-2"), "the tracker is there before the ranks"


def test_the_rank_that_raised_is_the_reason(xgboost, digits: Path) -> None:  # type: ignore[no-untyped-def]
    ran = xgboost.run(*TWO, "--slots", "1", PROGRAM, digits, "fail")
    assert [ran.code, *(ran.outcome(host)["code"] for host in ("algo-1", "algo-2"))] == [1, 1, 1], ran.stderr
    assert ran.reason.startswith("LookupError: no such shard\nrank 1 (local rank 0) on algo-2, exit code 1"), ran.reason
