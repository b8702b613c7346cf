"""The type that a model is trained in: its parameters, what goes into it, and what it returns."""

from __future__ import annotations

from typing import Any, Callable

import torch
from torch import nn
from torch.utils import _pytree

from . import delayed, sharding
from .nn.base import DistributedModule
from .state import state


def half() -> torch.dtype | None:
    """The half precision that the configuration asks for; None: the type of the model's parameters."""
    return torch.float16 if state.cfg.fp16 else torch.bfloat16 if state.cfg.bf16 else None


def convert(module: nn.Module) -> None:
    """Parameters and buffers of floating point become what the configuration says; parameters stay the same objects."""
    kind = half()
    if kind is not None and state.cfg.sharded_data_parallel_degree > 1:
        _convert_for_shards(module, kind)
    elif kind is not None:
        delayed.apply(module, lambda: module.to(kind), _to(kind))
    elif state.cfg.fp16_params:
        for each in module.modules():
            if isinstance(each, DistributedModule):
                delayed.apply(each, each.half, _to(torch.float16))


def _convert_for_shards(module: nn.Module, kind: torch.dtype) -> None:
    """Shards stay in float32, and are converted when they are gathered; buffers and what is in no shard aren't."""
    delayed.apply(module, module.float, _to(torch.float32))
    convert = _to(kind)
    for parameter in sharding.unfit(module):
        if not delayed.is_delayed(parameter):
            parameter.data = convert(parameter.data)
        elif parameter.is_floating_point():
            delayed.convert(parameter, kind)
    for each in module.modules():
        each._buffers.update((name, convert(buffer)) for name, buffer in each._buffers.items() if buffer is not None)


def _to(kind: torch.dtype) -> Callable[[torch.Tensor], torch.Tensor]:
    return lambda tensor: tensor.to(kind) if tensor.is_floating_point() else tensor


def enter(values: Any) -> Any:
    """Arguments of the model, with their tensors of floating point in its type."""
    kind = half()
    return values if kind is None else _pytree.tree_map_only(torch.Tensor, _to(kind), values)


def leave(values: Any) -> Any:
    """What the model returns, in float32 where it computes in half precision."""
    kind = half()
    if kind is None:
        return values
    return _pytree.tree_map_only(
        torch.Tensor, lambda tensor: tensor.float() if tensor.dtype == kind else tensor, values
    )
