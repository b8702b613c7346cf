"""Memory for modules that were made without."""

from __future__ import annotations

import torch
from torch import nn


def empty_module_params(module: nn.Module, device: torch.device | None = None, recurse: bool = False) -> nn.Module:
    """Gives parameters memory on ``device``, with whatever was in it; buffers stay what they are."""
    device = torch.device("cpu") if device is None else torch.device(device)
    for inner in module.modules() if recurse else (module,):
        for name, parameter in inner._parameters.items():
            if parameter is not None:
                empty = torch.empty_like(parameter, device=device)
                inner._parameters[name] = nn.Parameter(empty, requires_grad=parameter.requires_grad)
    return module


def move_buffers_to_device(module: nn.Module, device: torch.device, recurse: bool = False) -> nn.Module:
    """Moves the buffers that have values."""
    for inner in module.modules() if recurse else (module,):
        for name, buffer in inner._buffers.items():
            if buffer is not None and not buffer.is_meta:
                inner._buffers[name] = buffer.to(device)
    return module
