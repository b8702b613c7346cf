"""Hooks of parameters whose gradients come in parts or shards: as in one process, or refused by name."""

from __future__ import annotations

import pytest

from .conftest import RunRanks

pytestmark = pytest.mark.torch

IN_PARTS = "the gradient of parameter there.weight comes in parts, since several calls from other ranks"
IN_SHARDS = "parameter there.weight has a hook, which would get this rank's part of the gradient only"
WORDS = {
    "bounded, in parts": IN_PARTS,
    "bounded behind the sum, in parts": IN_PARTS,
    "masked, in shards": IN_SHARDS,
    "bounded behind the sum, in shards": IN_SHARDS,
}


def test_hooks_get_whole_gradients_or_do_the_same_with_parts(run_ranks: RunRanks) -> None:
    for said in run_ranks("smp_parameter_hooks.py", 2):
        assert len(said["exact"]) == 8
        assert all(isinstance(each, float) and each <= 1e-12 for each in said["exact"].values()), said["exact"]
        assert said["refused"].keys() == WORDS.keys()
        for name, text in said["refused"].items():
            assert WORDS[name] in str(text), (name, text)
