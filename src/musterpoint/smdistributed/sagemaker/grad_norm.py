"""Clips gradients of models in shards."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel, ShardingStrategy


def clip_grad_norm_(model: nn.Module, max_norm: float, norm_type: float = 2.0, **more: Any) -> torch.Tensor:
    """Scales all gradients so that their norm is ``max_norm`` at most; returns the norm before, of the whole model."""
    gradients = [each.grad for each in model.parameters() if each.grad is not None]
    if not isinstance(model, FullyShardedDataParallel):
        norm = nn.utils.clip_grad_norm_(model.parameters(), max_norm, norm_type)
        whole: torch.Tensor = norm.full_tensor() if hasattr(norm, "full_tensor") else norm
        return whole
    if not any(each.dtype == torch.float64 for each in gradients):
        return model.clip_grad_norm_(max_norm, norm_type)
    total = _of_shards(model, gradients, float(norm_type))  # torch's own goes through float32
    nn.utils.clip_grads_with_norm_(model.parameters(), max_norm, total)
    return total


def _of_shards(model: FullyShardedDataParallel, gradients: list[torch.Tensor], order: float) -> torch.Tensor:
    finite = order != float("inf")
    norms = [torch.linalg.vector_norm(each, order) for each in gradients if each.numel()]
    stacked = torch.stack(norms) if norms else torch.zeros(1, dtype=torch.float64)
    total = stacked.pow(order).sum() if finite else stacked.max()
    if model.sharding_strategy != ShardingStrategy.NO_SHARD:
        dist.all_reduce(total, dist.ReduceOp.SUM if finite else dist.ReduceOp.MAX, group=model.process_group)
    return total.pow(1 / order) if finite else total
