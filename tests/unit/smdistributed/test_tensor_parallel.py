"""Models whose tensors ranks share out train as one process that has the whole of them does; gloo, double precision."""

from __future__ import annotations

import json

import pytest

from .conftest import RunRanks

pytestmark = pytest.mark.torch

LAYOUTS = [
    {"optimize": optimize, "prescaled_batch": same} for optimize in ("memory", "speed") for same in (False, True)
]
OF_TWO = [
    *([{"tensor_parallel_degree": 2, **layout}, [], 6] for layout in LAYOUTS),
    [{"tensor_parallel_degree": 2, "prescaled_batch": True}, ["alone", "crossed", "language"], 5],
]
OF_FOUR = [
    [{"tensor_parallel_degree": 2, "partitions": 2}, ["words", "crossed", "language"], 6],
    [{"tensor_parallel_degree": 2, "partitions": 2, "pipeline": "simple", "microbatches": 4, **LAYOUTS[3]},
     ["causal", "registered"], 5],
    [{"tensor_parallel_degree": 2, "placement_strategy": "spread", **LAYOUTS[1]}, ["words", "alone"], 6],
    [{"tensor_parallel_degree": 4}, ["language"], 6],
]  # fmt: skip
"""The configuration, the models (none: all of them), and how long sequences are; ranks may not divide that."""


def test_two_ranks_share_tensors(run_ranks: RunRanks) -> None:
    for rank, models in enumerate(run_ranks("smp_tensor.py", 2, arguments=(json.dumps(OF_TWO), "smp_tensor_features"))):
        assert len(models) == 4 * 7 + 3 + 11
        _check(rank, models)


def test_with_pipelines_and_replicas(run_ranks: RunRanks) -> None:
    for rank, models in enumerate(run_ranks("smp_tensor.py", 4, arguments=(json.dumps(OF_FOUR),))):
        assert len(models) == 8
        _check(rank, models)


def _check(rank: int, models: dict[str, dict[str, float]]) -> None:
    for name, errors in models.items():
        assert max(errors.values()) <= 1e-12, (rank, name, errors)
