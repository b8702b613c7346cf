"""XGBoost on two hosts: its ranks meet at the tracker that the leader runs, and the one that fails is the reason."""

from __future__ import annotations

from pathlib import Path

import pytest

from .conftest import check_restarted, trained

PROGRAM = Path(__file__).parents[3] / "examples/xgboost/digits.py"
KILLED = Path(__file__).parent / "programs" / "xgboost_killed.py"
TWO = ("--hosts", "2", "--backend", "netns", "--launcher", "ranks")

pytestmark = pytest.mark.netns


@pytest.fixture
def xgboost(local, stack):  # type: ignore[no-untyped-def]
    local.environ["MUSTER_PYTHON"] = str(stack("xgboost") / "python")
    return local


def test_one_model_from_all_shards(xgboost) -> None:  # type: ignore[no-untyped-def]
    """The tracker serves the ranks of one attempt: the next one has another, after one rank was killed."""
    ran = xgboost.run(*TWO, "--host-slots", "1,2", "--max-restarts", "1", KILLED, PROGRAM)
    check_restarted(ran, "rank 2 (local rank 1) on algo-2, killed by SIGKILL (exit code 137)")
    assert sorted(trained(ran.stdout)) == [0, 1, 2]
    assert "Retrying connection" not in ran.log("algo-1") + ran.log("algo-2"), "the tracker is there before the ranks"
    assert (ran.output / "hosts/algo-1/opt/ml/model/model.json").exists()


def test_the_rank_that_raised_is_the_reason(xgboost) -> None:  # type: ignore[no-untyped-def]
    """In an Indexed Job of Kubernetes."""
    ran = xgboost.run("--platform", "kubernetes", *TWO, "--slots", "1", PROGRAM, "--shards", "1")
    hosts = ("train-0.train", "train-1.train")
    assert [ran.code, *(ran.outcome(host)["code"] for host in hosts)] == [1, 1, 1], ran.stderr
    who = "rank 1 (local rank 0) on train-1.train, exit code 1"
    assert ran.reason.startswith(f"LookupError: there are 1 shards, and none for rank 1\n{who}"), ran.reason
