"""What scripts do in steps with modules on other ranks: as in one process in double precision, or refused by name."""

from __future__ import annotations

from typing import NamedTuple

import pytest

from .conftest import RunRanks

pytestmark = pytest.mark.torch

IN_PARTS = "the gradient of parameter there.weight comes in parts, since several calls from other ranks"
IN_SHARDS = "parameter there.weight has a hook, which would get this rank's part of the gradient only"


class Table(NamedTuple):
    """A program's cases: how many are exact, the words by which others are refused, in how many worlds each."""

    exact: int
    refused: dict[str, str]
    worlds: int = 1


LOST = "and its gradient would be lost here. Give it a copy, such as tensor.clone()"

TABLES = {
    "smp_absent.py": Table(36, {
        "new_tensor": "there.weight is on rank 1 of the pipeline, and this is rank 0: torch.alias would use its value",
        "script": f"torch.mul would use its value in a scripted function, torch.func or C++, {LOST}",
        "function": f"an autograd.Function or a checkpoint with use_reentrant=True has got it as an argument, {LOST}",
        "reentrant checkpoint": "parameter there.weight is on rank 1 of the pipeline, and this is rank 0: an autograd.",
        "vmap": "parameter there.weight is on rank 1 of the pipeline, and this is rank 0: torch.mul would use its",
        "func.grad": "parameter there.weight is on rank 1 of the pipeline, and this is rank 0: torch.mul would use its",
        "deepcopy": "copy.deepcopy: parameter there.weight is on rank 1 of the pipeline, and this is rank 0, so there",
        "set_": "buffer there.index is on rank 1 of the pipeline, and this is rank 0: torch.set_ would change a copy",
        "data": "a parameter or buffer on another rank of the pipeline, which has no value here, is used where torch",
        "Parameter": "a parameter or buffer on another rank of the pipeline, which has no value here, is used where",
    }),
    "smp_aliases.py": Table(15, {
        "two arguments with memory in common, one changed there": "and that has memory in common with another one",
        "a copy of an argument with holes, changed there": "changes an argument in place that isn't contiguous",
        "the diagonal of an argument with holes": "module there, which is on another rank of the pipeline, returns a",
    }),
    "smp_autograd.py": Table(24, {
        "create_graph": "create_graph=True through module",
        "create_graph by backward": "create_graph=True through module",
        "create_graph by vhp": "create_graph=True through module",
        "torch.func": "torch.func (grad, vjp, jacrev, vmap, …) through the model",
        "a second time": "Trying to backward through the graph a second time",
        "elsewhere": "parameter block.0.weight is on rank 1 of the pipeline",
    }, worlds=3),
    "smp_hooks.py": Table(20, {
        "by a module that isn't seen to refer to it": "module blocks.0.norm has hooks, which run on the rank that runs",
        "in a step for the first time late": "module blocks.1.norm has hooks, for the first time, while other",
        "captured in a part for the first time there": "module there.blocks.0: a forward pass has registered hooks",
    }),
    "smp_names.py": Table(18, {
        **{f"{act}, {world}": "the model can't be copied (copy), saved (torch.save, pickle) or scripted (torch.jit)"
           for act in ("copied", "saved", "scripted") for world in ("parts", "tensors", "shards")},
        **{f"lazy, {world}": "weight of module there.0 (LazyLinear) has no shape yet: call the model with a batch"
           for world in ("parts", "tensors", "shards")},
        **{f"{kind}, {world}": "module there is scripted or traced (torch.jit), so that nobody hears of its calls"
           for kind in ("scripted_before", "traced") for world in ("parts", "shards")},
        "a configuration, each time": "attribute there.config of a module that rank 1 has, on rank 0: it was changed",
        "grad of a weight, tensors": "torch.mul: there.weight is divided over 2 ranks, and rank ",
        "grad through layers of a row, shards": "torch.func (grad, vjp, jacrev, vmap, …) through there.0, of which",
        "is_grads_batched": "is_grads_batched=True through module there, which is on another rank of the pipeline",
    }),
    "smp_parameter_hooks.py": Table(8, {
        "bounded, in parts": IN_PARTS,
        "bounded behind the sum, in parts": IN_PARTS,
        "masked, in shards": IN_SHARDS,
        "bounded behind the sum, in shards": IN_SHARDS,
    }),
    "smp_replaced.py": Table(13, {
        "functional_call for the first time late": "(torch.func.functional_call), for the first time, while other",
        "a loss that is left for the first time late": "attribute there.aux of a module that rank 1 has, on rank 1: it",
        "a sparse argument": "an argument of module there has a tensor of layout sparse_csr, which can't be sent",
        "sparse gradients in shards": "module there has sparse gradients (sparse=True), which torch doesn't clip",
        "an attribute with a gradient": "attribute there.given of a module that rank 1 has, on rank 0: its gradient",
        "weights that follow others, in shards": "parameter there.key.weight is changed in a forward pass, but each",
        "gradients of gradients of shared tensors": "create_graph=True through a module whose tensors several ranks",
        "torch.func through shared tensors": "torch.func (grad, vjp, jacrev, vmap, …) through a module whose tensors",
        "torch.func through a module elsewhere": "torch.func (grad, vjp, jacrev, vmap, …) through module there,",
        "rows that data choose, of shared tensors": "which share its tensors, call another one or with other shapes",
        "fewer modules of shared tensors": "which share its tensors, call another one or with other shapes",
        "other layers of a row, in shards": "as number 2 of the step rank 0 there.layers.0, rank 1 there.layers.2",
        "fewer layers of a row, in shards": "as number 3 of the step rank 0 there.layers.1, rank 1 nothing more",
        "another order in a row, in shards": "as number 2 of the step rank 0 there.layers.0, rank 1 there.layers.1",
        "other layers of a row late, in shards": "as number 2 of the step rank 0 there.layers.0, rank 1 there.layers.2",
        "other layers of a row late and without a backward pass, in shards": "ranks call different layers of a row",
    }),
}  # fmt: skip


@pytest.mark.parametrize("program", TABLES)
def test_each_case_is_exact_or_refused(run_ranks: RunRanks, program: str) -> None:
    table = TABLES[program]
    for said in run_ranks(program, 2):
        assert len(said["exact"]) == table.exact
        assert all(isinstance(each, float) and each <= 1e-12 for each in said["exact"].values()), said["exact"]
        assert len(said["refused"]) == len(table.refused) * table.worlds
        for name, text in said["refused"].items():
            assert table.refused[name.partition(" {")[0]] in str(text), (name, text)
