"""Scaling of losses for float16, with one decision for all parts of the model."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist

from ...shared import backend
from .state import state


class GradScaler(torch.amp.GradScaler):
    """Torch's own, but a gradient that is infinite on one rank of the replica counts on all of them.

    So all skip a step together, and their scales stay the same. Works on CPUs as well.
    """

    def __init__(
        self,
        init_scale: float = 2.0**16,
        growth_factor: float = 2.0,
        backoff_factor: float = 0.5,
        growth_interval: int = 2000,
        enabled: bool = True,
    ) -> None:
        device = "cuda" if backend.has_nccl() else "cpu"  # torch.cuda's own answer may be --cpu-fallback's
        super().__init__(device, init_scale, growth_factor, backoff_factor, growth_interval, enabled)

    def unscale_(self, optimizer: torch.optim.Optimizer) -> None:
        super().unscale_(_inner(optimizer))

    def step(self, optimizer: torch.optim.Optimizer, *args: Any, **kwargs: Any) -> float | None:
        return super().step(_inner(optimizer), *args, **kwargs)

    def _check_scale_growth_tracker(self, funcname: str) -> tuple[torch.Tensor, torch.Tensor]:
        if self._scale is None:  # the loss is scaled on the first rank only
            device = torch.device("cuda", torch.cuda.current_device()) if self._device == "cuda" else None
            self._lazy_init_scale_growth_tracker(device or torch.device("cpu"))
        return super()._check_scale_growth_tracker(funcname)

    def _unscale_grads_(
        self, optimizer: torch.optim.Optimizer, inv_scale: torch.Tensor, found_inf: torch.Tensor, allow_fp16: bool
    ) -> dict[torch.device, torch.Tensor]:
        by_device = super()._unscale_grads_(optimizer, inv_scale, found_inf, allow_fp16)
        found = found_inf  # also where this rank has no gradient at all
        for other in by_device.values():
            found = torch.maximum(found, other.to(found.device))
        replica = state.group("mp")
        if replica.size > 1:
            dist.all_reduce(found, dist.ReduceOp.MAX, group=replica.process_group)
        return {found.device: found}


def _inner(optimizer: torch.optim.Optimizer) -> torch.optim.Optimizer:
    """The wrapped optimizer where it takes the scale itself, as fused ones do: by attributes that it must have."""
    if getattr(optimizer, "_step_supports_amp_scaling", False):
        inner = getattr(optimizer, "optimizer", optimizer)
        assert isinstance(inner, torch.optim.Optimizer)
        return inner
    return optimizer
