"""``import smdistributed.dataparallel.torch.torch_smddp``: everything happens on import, and a second one does nothing.

Afterwards the launcher's variables are there by torch's names, ``init_process_group(backend="smddp")`` works, and rank
0 may evaluate alone.
"""

import functools
import logging
import os
from typing import Any

import torch
from torch.nn.parallel import DistributedDataParallel

from ...shared import backend, rank_environment
from ...shared.backend import GROUPS
from .. import __version__


# Torch begins each forward pass by sending rank 0's buffers (BatchNorm's statistics) to all, also when the model only
# evaluates. Called on rank 0 alone, that waits for ranks which are elsewhere or have ended.
def patch() -> None:
    """Has models that evaluate without gradients, in groups of this backend, send nothing.

    Rank 0's results are what they were, since its own buffers are those that would be sent. The next forward pass that
    trains sends them, on all ranks: what torch decides that by is put back afterwards, or rank 0 alone wouldn't send.
    """
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


rank_environment.export(os.environ)
if backend.register():
    patch()
    logging.getLogger("smdistributed.dataparallel").info("musterpoint's smdistributed.dataparallel %s", __version__)
