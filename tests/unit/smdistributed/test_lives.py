"""Changes of a divided model between steps: exact in double precision, or refused by name."""

from __future__ import annotations

from itertools import groupby
from pathlib import Path

import pytest

from .conftest import RunRanks, are_exact_or_refused
from .generated_models import LIVES, are_refused, five, ranks_of

pytestmark = pytest.mark.torch

IN_PARTS = ("head", "parameter", "module", "identity")
REFUSED = {
    **{f"{change}, parts": "behind the division of the model over the ranks" for change in IN_PARTS},
    "hook, shards": "parameter last.weight has a hook, which would get this rank's part of the gradient only",
    "hook_of_tensor, shards": "parameter last.weight has a hook",
    "hook_of_part, shards": "parameter there.weight has a hook",
    "hook_of_part, tensors": "parameter there.weight has a hook",
    "on_one_rank, parts": "requires_grad of parameter there.weight has another value on ranks [1] than on rank 0",
    "other_heads, parts": "module last was added, replaced or taken away",
    **{
        f"{change}, {world}": f"{what} was set or changed on ranks [{rank}] of [0, 1] only"
        for change, what, rank in (
            ("on_one_rank", "requires_grad of parameter there.weight", 1),
            ("other_heads", "module last", 0),
        )
        for world in ("replicas", "shared state", "tensors", "shards")
    },
}
"""By the change and the world."""


def test_parameters_have_a_life_after_the_division(run_ranks: RunRanks) -> None:
    first, _ = run_ranks("smp_lives.py", 2)
    assert len(first["said"]) == 75
    are_exact_or_refused(first["said"], REFUSED)


@pytest.mark.parametrize("life", LIVES)
def test_lives_after_the_division(run_ranks: RunRanks, tmp_path: Path, life: str) -> None:
    """Parameters, modules, hooks and numbers in buffers change while the model is trained."""
    for _, some in groupby(five(life, 7), ranks_of):
        are_refused(run_ranks, tmp_path / "models.jsonl", list(some))
