"""Autograd in step functions as in plain torch: exact in double precision, or refused by name."""

from __future__ import annotations

import pytest

from .conftest import RunRanks

pytestmark = pytest.mark.torch

WORDS = {
    "create_graph": "create_graph=True through module",
    "create_graph by backward": "create_graph=True through module",
    "create_graph by vhp": "create_graph=True through module",
    "torch.func": "torch.func (grad, vjp, jacrev, vmap, …) through the model",
    "a second time": "Trying to backward through the graph a second time",
    "elsewhere": "parameter block.0.weight is on rank 1 of the pipeline",
}


def test_gradients_of_some_tensors_and_graphs_that_stay(run_ranks: RunRanks) -> None:
    for said in run_ranks("smp_autograd.py", 2):
        assert len(said["exact"]) == 24 and max(said["exact"].values()) <= 1e-12, said["exact"]
        assert len(said["refused"]) == 18
        for name, text in said["refused"].items():
            assert WORDS[name.partition(" {")[0]] in text, (name, text)
