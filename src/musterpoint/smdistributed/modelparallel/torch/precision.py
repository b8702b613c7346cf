"""The type that a model is trained in: its parameters, what goes into it, and what it returns."""

from __future__ import annotations

from typing import Any, Callable

import torch
from torch import nn
from torch.utils import _pytree

from . import delayed
from .nn.base import DistributedModule
from .state import state


def half() -> torch.dtype | None:
    """The half precision that the configuration asks for; None: the type of the model's parameters."""
    return torch.float16 if state.cfg.fp16 else torch.bfloat16 if state.cfg.bf16 else None


def convert(module: nn.Module) -> None:
    """Parameters and buffers of floating point become what the configuration says; they stay the same objects."""
    kind = half()
    if kind is not None:
        delayed.apply(module, lambda: module.to(kind), _to(kind))
    elif state.cfg.fp16_params:
        for each in module.modules():
            if isinstance(each, DistributedModule):
                delayed.apply(each, each.half, _to(torch.float16))


def _to(kind: torch.dtype) -> Callable[[torch.Tensor], torch.Tensor]:
    return lambda tensor: tensor.to(kind) if tensor.is_floating_point() else tensor


def enter(values: Any) -> Any:
    """Arguments of the model, with their tensors of floating point in its type."""
    kind = half()
    if kind is None:
        return values
    return _pytree.tree_map_only(
        torch.Tensor, lambda tensor: tensor.to(kind) if tensor.is_floating_point() else tensor, values
    )


def leave(values: Any) -> Any:
    """What the model returns, in float32 where it computes in half precision."""
    kind = half()
    if kind is None:
        return values
    return _pytree.tree_map_only(
        torch.Tensor, lambda tensor: tensor.float() if tensor.dtype == kind else tensor, values
    )
