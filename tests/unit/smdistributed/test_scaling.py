"""Scaled losses on real ranks: all skip a step together, also one that has nothing to train."""

from __future__ import annotations

import pytest

from .conftest import RunRanks

pytestmark = pytest.mark.torch


def test_an_infinite_gradient_on_one_rank_counts_on_all(run_ranks: RunRanks) -> None:
    first, second = run_ranks("smp_scaling.py", 2)
    assert (first["owned"], second["owned"]) == (["0", "1"], ["2", "3"])
    for each in (first, second):
        assert each["error"] <= 1e-12
        assert max(map(abs, each["norms"])) <= 1e-12
        assert [ours for ours, _ in each["scales"]] == [theirs for _, theirs in each["scales"]]
        assert [ours for ours, _ in each["scales"]] == [1024.0, 2048.0, 1024.0, 1024.0, 2048.0]
    assert set(second["calls"]) == {8}  # two blocks, two microbatches, and each of them again
