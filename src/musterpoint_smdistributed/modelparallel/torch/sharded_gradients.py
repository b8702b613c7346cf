"""Gradients of a model in shards: one set per step, averaged over the copies of the shards.

``fully_shard`` has reduced each microbatch's gradients within a copy already, so what is left travels once per step,
and only between ranks that have the same part.
"""

from __future__ import annotations

from typing import Any, Mapping, Sequence

import torch
import torch.distributed as dist
from torch import nn

from ..backend.exceptions import SMPUnsupportedError
from .reducer import Group, Reducer
from .sharding import Sharding, here
from .state import state

Gradients = dict[str, torch.Tensor]


class ShardedGradients:
    """Does for shards what :class:`.Reducer` does for whole parameters, and has one for those that are whole."""

    def __init__(self, sharding: Sharding, world: Group, bucket: int) -> None:
        self._sharding, self._world, self._bucket = sharding, world, bucket
        self._parts = {name: each for name, each in sharding.parts.items() if each.requires_grad}
        self._whole = Reducer(sharding.whole.values(), world, overlap=False)
        self._copies = sharding.mesh["replicate"]
        self._before: Gradients = {}
        self._kept: Gradients = {}
        self._keeps = False
        self._scale, self._sending = 1.0, True

    def register_comm_hook(self, hook_state: Any, hook: Any) -> None:
        raise SMPUnsupportedError(
            "model.register_comm_hook: with sharded_data_parallel_degree over 1 gradients are reduced by torch's "
            "fully_shard, which has no such hooks; leave it out"
        )

    def begin(self, scale: float, sending: bool) -> None:
        """As :meth:`.Reducer.begin`."""
        self._scale, self._sending = scale, sending
        self._whole.begin(scale, sending)
        self._sharding.used.clear()
        found = {name: part.grad for name, part in self._parts.items() if part.grad is not None}
        if self._keeps:
            self._kept = found
        else:
            self._before, self._kept = found, {}
        for part in self._parts.values():
            part.grad = None

    def cancel(self) -> None:
        """As :meth:`.Reducer.cancel`."""
        self._whole.cancel()
        for name, gradient in (self._kept if self._keeps else self._before).items():
            self._parts[name].grad = gradient

    def finish(self) -> None:
        """As :meth:`.Reducer.finish`; gradients of shards are without the loss scale then."""
        self._whole.finish()
        used = self._used()
        loss_scale = 1.0 if state.optimizer is None else state.optimizer.loss_scale
        for name, part in self._parts.items():
            if name not in used:
                part.grad = None
                continue
            if part.grad is None:  # on this rank
                part.grad = torch.zeros_like(part)
            here(part.grad).mul_(self._scale / loss_scale)
        _add(self._parts, self._kept)
        self._keeps = not self._sending
        if self._sending:
            self._average([here(part.grad) for part in self._parts.values() if part.grad is not None])
            _add(self._parts, self._before)

    def _used(self) -> set[str]:
        """The parameters that any rank has a gradient for; the same on all."""
        names = list(self._parts)
        flagged = [
            float(name in self._sharding.used or name in self._kept or _nonzero(self._parts[name])) for name in names
        ]
        device = next((here(part).device for part in self._parts.values()), torch.device("cpu"))
        flags = torch.tensor(flagged, device=device)
        if names:
            dist.all_reduce(flags, dist.ReduceOp.MAX, group=self._world.process_group)
        return {name for name, flag in zip(names, flags.tolist()) if flag > 0}

    def _average(self, gradients: Sequence[torch.Tensor]) -> None:
        """Over the copies, in place."""
        copies = self._copies.size()
        if copies == 1:
            return
        for bucket in _buckets(gradients, self._bucket):
            flat = torch.cat([each.reshape(-1) for each in bucket])
            dist.all_reduce(flat, group=self._copies.get_group())
            flat.div_(copies)
            for each, values in zip(bucket, torch.split(flat, [each.numel() for each in bucket])):
                each.copy_(values.view(each.shape))


def _buckets(tensors: Sequence[torch.Tensor], elements: int) -> list[list[torch.Tensor]]:
    """In their order; one larger than a bucket goes by itself."""
    buckets: list[list[torch.Tensor]] = []
    size = 0
    for tensor in tensors:
        if not buckets or size + tensor.numel() > elements:
            buckets.append([])
            size = 0
        buckets[-1].append(tensor)
        size += tensor.numel()
    return buckets


def _nonzero(part: nn.Parameter) -> bool:
    """Whether a gradient came past autograd's notes: of a parameter that was used outside of its module."""
    return part.grad is not None and bool(here(part.grad).any())


def _add(parts: Mapping[str, nn.Parameter], gradients: Mapping[str, torch.Tensor]) -> None:
    """Adds to what the parameters have now."""
    for name, gradient in gradients.items():
        part = parts[name]
        if part.grad is None:
            part.grad = gradient
        else:
            here(part.grad).add_(here(gradient))
