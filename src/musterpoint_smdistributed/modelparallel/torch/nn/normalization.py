"""Layer normalization between distributed layers."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import nn
from torch.nn import functional

from . import layouts
from .base import DistributedModule
from .layouts import Layout

FusedLayerNorm = nn.LayerNorm
"""Torch's own is one fused kernel on GPUs, as apex's is."""


class DistributedLayerNorm(DistributedModule, nn.LayerNorm):
    """``torch.nn.LayerNorm`` of the activations that the script has; its parameters are whole on every rank."""


class InnerLayerNorm(DistributedModule, nn.LayerNorm):
    """Layer normalization of activations in a layout."""

    inside: ClassVar[tuple[str, ...]] = ("weight", "bias")

    def __init__(self, size: int, eps: float) -> None:
        super().__init__(size, eps=eps)
        self.mark()

    def forward(self, input: torch.Tensor, layout: Layout = "own") -> torch.Tensor:
        weight, bias = layouts.shared(self.weight, layout), layouts.shared(self.bias, layout)
        return functional.layer_norm(input, self.normalized_shape, weight, bias, self.eps)
