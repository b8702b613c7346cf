"""Packed sequences under context parallelism of version 2, against one process in double precision."""

from __future__ import annotations

import pytest

from .conftest import RunRanks

pytestmark = pytest.mark.torch


def test_packed_sequences_are_those_of_one_process(run_ranks: RunRanks) -> None:
    for said in run_ranks("tsm_packed.py", 2):
        assert said["one"] <= 1e-12 and said["packed"] <= 1e-12, said
        for text, name in zip(said["refused"], ("softcap", "s_aux", "is_causal=False"), strict=True):
            assert f"is called with {name}" in text and "context_parallel_degree" in text
