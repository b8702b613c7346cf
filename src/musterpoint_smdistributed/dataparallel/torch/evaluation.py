"""Lets rank 0 evaluate alone through DistributedDataParallel, as scripts for AWS's library do.

Torch begins each forward pass by sending rank 0's buffers (BatchNorm's statistics) to all, also when the model only
evaluates. Called on rank 0 alone, that waits for ranks which are elsewhere or have ended.
"""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch.nn.parallel import DistributedDataParallel

from ...shared.backend import GROUPS

_patched = False


def patch() -> None:
    """Has models that evaluate without gradients, in groups of this backend, send nothing.

    Rank 0's results are what they were, since its own buffers are those that would be sent. The next forward pass that
    trains sends them, on all ranks: what torch decides that by is put back afterwards, or rank 0 alone wouldn't send.
    """
    global _patched
    if _patched:
        return
    _patched = True
    ddp: Any = DistributedDataParallel
    forward = ddp.forward

    @functools.wraps(forward)
    def forward_alone(self: DistributedDataParallel, *inputs: Any, **named: Any) -> Any:
        if self.module.training or torch.is_grad_enabled() or self.process_group not in GROUPS:
            return forward(self, *inputs, **named)
        due, self.require_forward_param_sync = self.require_forward_param_sync, False
        try:
            return forward(self, *inputs, **named)
        finally:
            self.require_forward_param_sync = due

    ddp.forward = forward_alone
