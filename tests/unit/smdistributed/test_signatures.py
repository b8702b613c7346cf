"""No argument is swallowed: one that nothing here knows, and that isn't None, is an error."""

from __future__ import annotations

from typing import Callable

import pytest

CALLS = """
import torch
import smdistributed.modelparallel.torch as smp
import torch.sagemaker as tsm
from smdistributed.dataparallel.torch.parallel import DistributedDataParallel
from torch.sagemaker.distributed.checkpoint import state_dict_loader, state_dict_saver
from torch.sagemaker.grad_norm import clip_grad_norm_

smp.init({})
net = torch.nn.Linear(2, 2)
for each in (smp.tensor_parallelism, smp.model_creation):
    with each(strange=None, fused_softmax=True):
        pass
sgd = torch.optim.SGD(net.parameters(), 0.1)
calls = {
    "tensor_parallelism": lambda: smp.tensor_parallelism(strange=1).__enter__(),
    "model_creation": lambda: smp.model_creation(strange=1).__enter__(),
    "set_tensor_parallelism": lambda: smp.set_tensor_parallelism(net, strange=1),
    "DistributedModel": lambda: smp.DistributedModel(net, strange=1),
    "DistributedOptimizer": lambda: smp.DistributedOptimizer(sgd, strange=1),
    "checkpoint": lambda: smp.patches.checkpoint.checkpoint(net, torch.ones(2), strange=1),
    "step": lambda: smp.step(lambda x: x, strange=1),
    "save": lambda: smp.save({}, "file", strange=1),
    "init": lambda: tsm.init(strange=1),
    "transform": lambda: tsm.transform(net, strange=1),
    "saver": lambda: state_dict_saver.save({}, checkpoint_id="place", strange=1),
    "async_saver": lambda: state_dict_saver.async_save({}, checkpoint_id="place", strange=1),
    "loader": lambda: state_dict_loader.load({}, checkpoint_id="place", strange=1),
    "clip": lambda: clip_grad_norm_(net, 1.0, strange=1),
    "DDP": lambda: DistributedDataParallel(net, strange=1),
}
for name in ("AttentionLayer", "TransformerOutputLayer", "TransformerLayer", "Transformer", "TransformerLMHead",
             "Linear", "Embedding", "LayerNorm"):
    calls[name] = lambda kind=getattr(smp.nn, f"Distributed{name}"): kind(8, 4, strange=1)
said = []
for name, call in calls.items():
    try:
        call()
        said.append(f"{name} took it")
    except (TypeError, NotImplementedError) as error:
        if "strange" not in str(error):
            said.append(f"{name}: {error}")
print(said)
"""


@pytest.mark.torch
def test_unknown_arguments_are_errors(python_says: Callable[..., str]) -> None:
    assert python_says(CALLS) == "[]"
