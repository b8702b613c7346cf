"""``tsm.transform``: the model as it is trained."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from .errors import SMPUnsupportedError
from .state import state


def transform(
    model: nn.Module, device: torch.device | None = None, dtype: torch.dtype | None = None, config: Any = None,
    load_state_dict_from_rank0: bool = False, cp_comm_type: str = "p2p",
) -> nn.Module:  # fmt: skip
    """The model with its own modules: with all degrees 1 there is nothing to replace.

    Args:
        device, dtype: where its parameters go, and of which type they are then.
        config: a ``MoEConfig`` with ``smp_moe=False``, or None.
        load_state_dict_from_rank0: rank 0 keeps its weights either way; FSDP's ``sync_module_states=True`` gives them
            to the others.
        cp_comm_type: without effect.

    Raises:
        SMPNotInitializedError: before ``tsm.init``.
        SMPUnsupportedError: ``config`` asks for AWS's own mixture of experts.
    """
    _ = state.world
    if getattr(config, "smp_moe", False):
        raise SMPUnsupportedError(
            "tsm.transform(config=MoEConfig(smp_moe=True)): musterpoint's torch.sagemaker has no mixture of experts of "
            "its own; leave config out, and the model's own experts are trained, sharded by hybrid_shard_degree"
        )
    meta = any(each.is_meta for each in model.parameters())
    return model.to(device=None if meta else device, dtype=dtype)
