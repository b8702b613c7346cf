"""``tsm.transform``: the model as it is trained."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from .context_parallel import divide
from .errors import SMPUnsupportedError
from .expert_parallel import divide_experts
from .state import state
from .tensor_parallel.dividing import parallelize
from .tensor_parallel.transformer import mark_layers


def transform(
    model: nn.Module,
    device: torch.device | None = None,
    dtype: torch.dtype | None = None,
    config: Any = None,
    load_state_dict_from_rank0: bool = False,
    cp_comm_type: str = "p2p",
) -> nn.Module:
    """The model with its own modules, divided as the degrees say; with all of them 1 there is nothing to divide.

    Args:
        device, dtype: where its parameters go, and of which type they are then.
        config: a ``MoEConfig`` whose ``moe_load_balancing`` is ``none``, or None: the model's own routing either way.
        load_state_dict_from_rank0: rank 0 keeps its weights either way, and the ranks that share its layers get their
            parts of them, also where their models are on the meta device; FSDP's ``sync_module_states=True`` gives
            them to the others.
        cp_comm_type: ``p2p`` or ``all_gather``: how keys and values get to the ranks that share sequences; both gather.

    Raises:
        SMPNotInitializedError: before ``tsm.init``.
        SMPConfigError: the model can't be divided evenly.
        SMPUnsupportedError: ``config`` asks for a routing of AWS's, or nobody knows how to divide the model.
    """
    world = state.world
    _check_experts(config)
    meta = any(each.is_meta for each in model.parameters())
    model = model.to(device=None if meta else device, dtype=dtype)
    if world.tensor is not None:
        model = parallelize(model, world.tensor, load_state_dict_from_rank0)
    if world.layout.context > 1:
        model = divide(model, world.groups["cp"], cp_comm_type)
    if world.layout.experts > 1:
        model = divide_experts(model, world.layout)
    mark_layers(model)
    return model


def _check_experts(config: Any) -> None:
    """The model's own routing is kept, so another one is refused."""
    if not getattr(config, "smp_moe", False):
        return
    if config.moe_load_balancing != "none" or config.global_token_shuffle:
        raise SMPUnsupportedError(
            f"tsm.transform(config=MoEConfig(smp_moe=True, moe_load_balancing={config.moe_load_balancing!r}, "
            f"global_token_shuffle={config.global_token_shuffle})): musterpoint's torch.sagemaker has no routing of "
            "its own; leave config out, or pass moe_load_balancing='none', and the model's own routing and losses are "
            "trained, its experts divided by expert_parallel_degree"
        )
