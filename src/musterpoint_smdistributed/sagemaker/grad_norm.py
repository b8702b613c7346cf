"""Clips gradients of models in shards."""

from __future__ import annotations

from typing import Any, cast

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel, ShardingStrategy
from torch.distributed.tensor import DTensor

from .state import state
from .tensor_parallel.dividing import placements_of, without_wrappers


def clip_grad_norm_(model: nn.Module, max_norm: float, norm_type: float = 2.0, **more: Any) -> torch.Tensor:
    """Scales all gradients so that their norm is ``max_norm`` at most; returns the norm before, of the whole model."""
    unknown = sorted(name for name, value in more.items() if value is not None)
    if unknown:
        raise TypeError(f"clip_grad_norm_: {', '.join(unknown)}: expected model, max_norm and norm_type only")
    order = float(norm_type)
    groups = _by_mesh(model)
    if not isinstance(model, FullyShardedDataParallel):
        total = _together([_of_tensors(each, order) for each in groups] or [torch.zeros(())], order)
    else:
        experts, shared, own = _gradients(model)
        if not experts and not shared and not any(each.grad.dtype == torch.float64 for each in own):
            return model.clip_grad_norm_(max_norm, norm_type)
        norms = [_of_shards(model, shared, own, order)]  # torch's own goes through float32
        total = _together([*norms, *([_of_tensors(experts, order)] if experts else [])], order)
    for each in groups:
        nn.utils.clip_grads_with_norm_(each, max_norm, total)
    return total


def _by_mesh(model: nn.Module) -> list[list[Any]]:
    """Parameters with gradients, those that the same ranks share together: experts are on other ranks than all else."""
    found: dict[Any, list[Any]] = {}
    for each in model.parameters():
        if each.grad is not None:
            found.setdefault(getattr(each.grad, "device_mesh", None), []).append(each)
    return list(found.values())


def _of_tensors(parameters: list[Any], order: float) -> torch.Tensor:
    norm: Any = nn.utils.get_total_norm([each.grad for each in parameters], order)
    return cast(torch.Tensor, norm.full_tensor() if hasattr(norm, "full_tensor") else norm)


def _together(norms: list[torch.Tensor], order: float) -> torch.Tensor:
    return norms[0] if len(norms) == 1 else torch.linalg.vector_norm(torch.stack(norms), order)


def _gradients(model: nn.Module) -> tuple[list[Any], list[Any], list[Any]]:
    """Parameters of experts, which are sharded by themselves, those that ranks share, and those that each has whole."""
    divided = {name for name, placement in placements_of(model).items() if not placement.is_replicate()}
    experts: list[Any] = []
    shared: list[Any] = []
    own: list[Any] = []
    for name, each in model.named_parameters():
        if each.grad is not None:
            kind = experts if isinstance(each.grad, DTensor) else shared if without_wrappers(name) in divided else own
            kind.append(each)
    return experts, shared, own


def _of_shards(model: FullyShardedDataParallel, shared: list[Any], own: list[Any], order: float) -> torch.Tensor:
    finite = order != float("inf")

    def total_of(parameters: list[Any], group: Any) -> torch.Tensor:
        norms = [torch.linalg.vector_norm(each.grad, order) for each in parameters if each.numel()]
        stacked = torch.stack(norms) if norms else torch.zeros(1, dtype=every[0].dtype, device=every[0].device)
        total = stacked.pow(order).sum() if finite else stacked.max()
        if group is not None:
            dist.all_reduce(total, dist.ReduceOp.SUM if finite else dist.ReduceOp.MAX, group=group)
        return total

    every = shared + own or [torch.zeros(1, dtype=torch.float64)]
    parts = torch.stack([total_of(shared, state.tp_process_group if shared else None), total_of(own, None)])
    total = parts.sum() if finite else parts.max()
    if model.sharding_strategy != ShardingStrategy.NO_SHARD:
        dist.all_reduce(total, dist.ReduceOp.SUM if finite else dist.ReduceOp.MAX, group=model.process_group)
    return total.pow(1 / order) if finite else total
