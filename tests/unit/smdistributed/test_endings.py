"""A rank that ends in a step ends the job with an error that says who it was; real ranks, each with its exit code."""

from __future__ import annotations

import pytest

from .conftest import RunRanks

pytestmark = pytest.mark.torch


@pytest.mark.parametrize(
    ("how", "own", "told"),
    [
        ("exit", "sys.exit(0) was called in a step on rank 1", "SystemExit: 0"),
        ("locked", "Locked: with a lock", "Locked: with a lock"),
        ("interrupted", "KeyboardInterrupt", "KeyboardInterrupt"),
    ],
)
def test_a_module_elsewhere_ends_its_rank(run_ranks: RunRanks, how: str, own: str, told: str) -> None:
    first, second = run_ranks("smp_exit.py", 2, arguments=(how,), fails=True)
    assert first["code"] and second["code"]
    assert own in second["errors"], second
    assert "SMPRemoteError: rank 1 failed, and with it this step" in first["errors"] and told in first["errors"], first


def test_a_rank_that_leaves_between_steps_is_missed_by_the_next(run_ranks: RunRanks) -> None:
    first, second = run_ranks("smp_exit.py", 2, arguments=("leaves",), fails=True)
    assert first["code"] and not second["code"]
    assert "SMPPeerLostError: rank 1 has ended, or its connection to rank 0" in first["errors"], first


def test_a_step_that_is_over_before_another_rank_serves_it(run_ranks: RunRanks) -> None:
    assert run_ranks("smp_late.py", 2, SMP_TIMEOUT_SECONDS="100") == [{"same": True}] * 2
