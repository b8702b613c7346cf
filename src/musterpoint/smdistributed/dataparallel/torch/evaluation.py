"""Lets rank 0 evaluate alone through DistributedDataParallel, as scripts for AWS's library do.

Torch begins each forward pass by sending rank 0's buffers (BatchNorm's statistics) to all, also when the model only
evaluates. Called on rank 0 alone, that waits for ranks which are elsewhere or have ended.
"""

from __future__ import annotations

import functools
from typing import Any

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from .backend import NAME


def patch() -> None:
    """Has models that evaluate without gradients, in groups of this backend, send nothing.

    Rank 0's results are what they were, since its own buffers are those that would be sent. The next forward pass that
    trains sends them, on all ranks: torch would think on rank 0 that it has just happened.
    """
    ddp: Any = DistributedDataParallel
    forward = ddp.forward

    @functools.wraps(forward)
    def forward_alone(self: DistributedDataParallel, *inputs: Any, **named: Any) -> Any:
        if self.module.training or torch.is_grad_enabled() or dist.get_backend(self.process_group) != NAME:
            return forward(self, *inputs, **named)
        due, self.require_forward_param_sync = self.require_forward_param_sync, False
        try:
            return forward(self, *inputs, **named)
        finally:
            self.require_forward_param_sync = due

    ddp.forward = forward_alone
