"""Other tensors in the place of parameters, buffers and attributes elsewhere: as in one process, or refused by name."""

from __future__ import annotations

import pytest

from .conftest import RunRanks

pytestmark = pytest.mark.torch

WORDS = {
    "functional_call for the first time late": "first.weight has another tensor in its place (torch.func."
    "functional_call), for the first time and while other microbatches are under way",
    "an attribute with a gradient": "attribute there.given of a module that rank 1 has, on rank 0: its gradient "
    "wouldn't come back",
    "weights that follow others, in shards": "parameter there.key.weight is changed in a forward pass, but each rank "
    "keeps a part of it",
    "gradients of gradients of shared tensors": "create_graph=True through a module whose tensors several ranks share",
    "torch.func through shared tensors": "torch.func (grad, vjp, jacrev, vmap, …) through a module whose tensors",
    "torch.func through a module elsewhere": "torch.func (grad, vjp, jacrev, vmap, …) through module there, which is",
    "rows that data choose, of shared tensors": "which share its tensors, call another one or with other shapes",
    "fewer modules of shared tensors": "which share its tensors, call another one or with other shapes",
    "other layers of a row, in shards": "as number 2 of the step rank 0 there.layers.0, rank 1 there.layers.2",
    "fewer layers of a row, in shards": "as number 3 of the step rank 0 there.layers.1, rank 1 nothing more",
    "another order in a row, in shards": "as number 2 of the step rank 0 there.layers.0, rank 1 there.layers.1",
    "other layers of a row late, in shards": "as number 2 of the step rank 0 there.layers.0, rank 1 there.layers.2",
    "other layers of a row late and without a backward pass, in shards": "ranks call different layers of a row, or in",
}


def test_modules_elsewhere_are_called_with_what_is_in_the_place_of_theirs(run_ranks: RunRanks) -> None:
    for said in run_ranks("smp_replaced.py", 2):
        assert len(said["exact"]) == 13
        assert all(isinstance(each, float) and each <= 1e-12 for each in said["exact"].values()), said["exact"]
        assert said["refused"].keys() == WORDS.keys()
        for name, text in said["refused"].items():
            assert WORDS[name] in str(text), (name, text)
