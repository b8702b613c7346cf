"""Says where forward passes leave tensors on modules: microbatches that are under way overwrite them for each other."""

from __future__ import annotations

from typing import Iterator

import torch
from torch import nn

from . import log
from .state import state


def found(module: nn.Module) -> Iterator[str]:
    """``decoder.kept`` for each attribute with a tensor of a forward pass."""
    for name, each in module.named_modules():
        for attribute, value in vars(each).items():
            if isinstance(value, torch.Tensor) and value.grad_fn is not None and not _reparametrized(each, attribute):
                yield f"{name}.{attribute}" if name else attribute


def _reparametrized(module: nn.Module, attribute: str) -> bool:
    """Whether torch's weight_norm or spectral_norm makes it of parameters, right before each use."""
    return any(f"{attribute}{end}" in module._parameters for end in ("_orig", "_g", "_v"))


def warn(module: nn.Module) -> None:
    """One warning, on the rank where they are, after a step in training with several microbatches."""
    names = list(found(module))
    if names and state.cfg.microbatches > 1:
        log.get_logger().warning(
            "%s %s left by a forward pass: %s microbatches are under way at once and overwrite what another one reads "
            "there, so hand tensors on as arguments and results",
            ", ".join(names),
            "is" if len(names) == 1 else "are",
            state.cfg.microbatches,
        )
