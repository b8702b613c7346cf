"""Models in parts train as one process that has the whole of them does; real ranks, gloo, double precision."""

from __future__ import annotations

from typing import Any

import pytest

from .conftest import RunRanks

pytestmark = pytest.mark.torch


def check(said: list[dict[str, Any]]) -> None:
    for rank, models in enumerate(said):
        for name, errors in models.items():
            assert max(errors.values()) <= 1e-12, (rank, name, errors)


def test_two_parts_two_replicas_simple_spread(run_ranks: RunRanks) -> None:
    check(run_ranks("smp_exact.py", 4, PARTITIONS="2", PIPELINE="simple", PLACEMENT="spread"))


def test_four_parts_interleaved(run_ranks: RunRanks) -> None:
    check(run_ranks("smp_exact.py", 4, PARTITIONS="4"))
