"""No argument is swallowed: each is used, or is known to have no effect; another one that isn't None is an error."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Callable, Iterator

import pytest

import musterpoint

ROOT = Path(musterpoint.__file__).parents[1] / "musterpoint_smdistributed"
WITHOUT_EFFECT = {
    "dataparallel/tensorflow/gradients.py DistributedGradientTape.__init__": {"sparse_as_dense"},  # always
    "dataparallel/tensorflow/gradients.py DistributedOptimizer": {"sparse_as_dense"},
    "dataparallel/tensorflow/session.py BroadcastGlobalVariablesHook.__init__": {"device"},
    "dataparallel/tensorflow/session.py BroadcastGlobalVariablesHook.after_create_session": {"coord"},
    "dataparallel/torch/distributed.py init_process_group": {"args", "kwargs"},  # AWS's takes and ignores all
    "modelparallel/tensorflow/world.py barrier": {"_group"},
    "modelparallel/torch/checkpoint.py load": {"back_compat"},
    "modelparallel/torch/model.py DistributedModel.__init__": {
        "trace_device", "trace_execution_times", "trace_memory_usage", "find_unused_parameters",
        "gradient_as_bucket_view",
    },
    "modelparallel/torch/model.py DistributedModel.__new__": {"args", "kwargs"},  # __init__ gets them
    "modelparallel/torch/model.py DistributedModel.is_distributed_buffer": {"buffer"},  # there are none
    "modelparallel/torch/model.py DistributedModel.is_scaled_batch_buffer": {"buffer"},
    "modelparallel/torch/model.py DistributedModel.local_named_modules": {"memo"},
    "modelparallel/torch/nn/attention.py FlashAttentionLayer.__init__": {
        "attention_head_size", "triton_flash_attention",
    },
    "modelparallel/torch/nn/base.py DistributedModule.why_not": {"args", "kwargs"},  # __init__ gets them
    "modelparallel/torch/nn/embedding.py DistributedEmbedding.why_not": {"num_embeddings", "args", "kwargs"},
    "modelparallel/torch/nn/linear.py DistributedLinear.why_not": {"out_features", "args", "kwargs"},
    "modelparallel/torch/nn/transformer.py DistributedTransformer.why_not": {"num_layers"},
    "modelparallel/torch/patches/checkpoint.py set_activation_checkpointing": {"pack_args_as_tuple"},
    "sagemaker/distributed/checkpoint/state_dict_saver.py maybe_finalize_async_calls": {"process_group"},
    "sagemaker/distributed/fsdp/checkpoint.py load_model_checkpoint": {"sharding_strategy"},
    "sagemaker/distributed/fsdp/checkpoint.py save_model_checkpoint": {"sharding_strategy"},
}  # fmt: skip
"""By function: arguments that AWS's packages have and nothing depends on here."""
INTERNAL = {
    "dataparallel/tensorflow/keras/callbacks.py", "dataparallel/tensorflow/world.py", "finder.py",
    "modelparallel/torch/nodes.py", "modelparallel/torch/server.py", "modelparallel/torch/tracing.py",
    "modelparallel/torch/values.py", "modelparallel/torch/worker.py",
    "sagemaker/context_parallel.py", "sagemaker/styles.py",
}  # fmt: skip
"""Modules whose functions torch and others call, with what these have to say."""
OTHERS = ("__torch_function__", "__torch_dispatch__", "__deepcopy__")


def functions(node: ast.AST, names: tuple[str, ...] = ()) -> Iterator[tuple[str, ast.FunctionDef]]:
    """Those of modules and classes that scripts can call: no private ones, and none inside of functions."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.ClassDef) and not child.name.startswith("_"):
            yield from functions(child, (*names, child.name))
        elif isinstance(child, ast.FunctionDef) and (not child.name.startswith("_") or child.name.startswith("__")):
            yield ".".join((*names, child.name)), child
        elif isinstance(child, (ast.If, ast.Try)):
            yield from functions(child, names)


def unused(function: ast.FunctionDef) -> set[str]:
    given = function.args
    every = [*given.posonlyargs, *given.args, *given.kwonlyargs, given.vararg, given.kwarg]
    names = {each.arg for each in every if each is not None} - {"self", "cls"}
    return names - {node.id for part in function.body for node in ast.walk(part) if isinstance(node, ast.Name)}


def only_says_what(function: ast.FunctionDef) -> bool:
    """A protocol's method, or one that raises whatever it is given."""
    last = function.body[-1]
    return isinstance(last, ast.Raise) or (isinstance(last, ast.Expr) and isinstance(last.value, ast.Constant))


def test_every_argument_is_used() -> None:
    swallowed: dict[str, set[str]] = {}
    for path in sorted(ROOT.rglob("*.py")):
        place = str(path.relative_to(ROOT))
        if place.startswith(("shared/", "startup/")) or place in INTERNAL:
            continue
        for name, function in functions(ast.parse(path.read_text(encoding="utf-8"))):
            names = unused(function) - WITHOUT_EFFECT.get(f"{place} {name}", set())
            if names and not only_says_what(function) and name.split(".")[-1] not in OTHERS:
                swallowed[f"{place} {name}"] = names
    assert not swallowed


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
