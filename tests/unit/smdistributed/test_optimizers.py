"""Optimizers, norms and caches in a divided model: exact in double precision, or refused by name."""

from __future__ import annotations

import pytest

from .conftest import RunRanks, are_exact_or_refused

pytestmark = pytest.mark.torch

PARTS = "in a trial of 9 steps parts of a parameter"
COUPLED = "in a trial of 9 steps each parameter by itself comes out otherwise than all together"
CLOSURE = "its step() needs closure, and calls it on its own"
CACHED = "torch.nn.utils.parametrize.cached(): "
INSIDE = "has other optimizers inside, which would step over the model's own parameters"
WORLDS = {
    "parts": "partitions=2",
    "tensors": "tensor_parallel_degree=2",
    "shards": "sharded_data_parallel_degree=2",
    "shared state": "shard_optimizer_state=True",
}
REFUSED = {
    **{f"Together, {world}": f"Together can't be used with {shown}" for world, shown in WORLDS.items()},
    **{f"lbfgs, {world}": CLOSURE for world in WORLDS},
    **{f"{name}, tensors": PARTS for name in ("Adafactor", "Muon", "trust")},
    **{f"{name}, shards": PARTS for name in ("Muon", "trust")},
    **{f"{name}, shards": "a trial with a copy of it failed (RuntimeError: aten." for name in ("Adafactor", "Rprop")},
    **{f"Locked, {world}": "(TypeError: cannot pickle '_thread.lock' object)" for world in ("tensors", "shards")},
    "two, shared state": f"Two {INSIDE}",
    "cached, parts": f"{CACHED}the model is called on several ranks",
    **{
        f"clip smallest, {world}": "norm_type -inf of a model in parts: expected one above 0"
        for world in ("parts", "tensors", "shards")
    },
    "clip by itself": "other ranks clip by other parameters than",
    **{f"Late, {world}": PARTS for world in ("tensors", "shards")},
    "switched": PARTS,
    "cached around": f"{CACHED}it is around a step function, which runs several microbatches",
    "no optimizer": "Nothing has no param_groups, state or step",
}
"""By the optimizer and the world."""


def test_optimizers_are_asked(run_ranks: RunRanks) -> None:
    """Each trains as in one process, or is refused by name."""
    first, second = run_ranks("smp_optimizers.py", 2)
    assert len(first["said"]) == 92
    are_exact_or_refused(first["said"], REFUSED)
    (warned,) = first["warned"]
    assert warned.startswith("a norm of first.weight.grad was taken: this rank has the gradients of its part")
    assert second["warned"] == [], "rank 0 says it"
    assert all(COUPLED in first["said"][f"Together, {world}"] for world in WORLDS)
