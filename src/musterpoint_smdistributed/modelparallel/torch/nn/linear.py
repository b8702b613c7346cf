"""Linear layers whose weights are divided by inputs, or by outputs."""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import nn
from torch.nn import functional

from . import layouts
from .base import DistributedModule, must_divide
from .layouts import Layout


class DistributedLinear(DistributedModule, nn.Linear):
    """``torch.nn.Linear`` with its weight divided by inputs; the sizes are those of all ranks together."""

    divided: ClassVar[dict[str, int]] = {"weight": 1}

    def __init__(
        self, in_features: int, out_features: int, bias: bool = True, device: Any = None, dtype: Any = None
    ) -> None:
        must_divide("DistributedLinear", in_features=in_features)
        super().__init__(in_features, out_features, bias, device, dtype)
        self.divide()

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        """Input (batch, …, in_features), of the same shape on all ranks of the group, and output (batch, …, out)."""
        alone = input.dim() == 1
        result = layouts.summed_to_script(
            functional.linear(layouts.to_parts(input[None] if alone else input), self.weight)
        )
        if self.bias is not None:
            result = result + self.bias
        return result[0] if alone else result


class ColumnLinear(DistributedModule, nn.Linear):
    """A linear layer divided by outputs, inside of a distributed layer: takes whole activations, gives its outputs."""

    divided: ClassVar[dict[str, int]] = {"weight": 0, "bias": 0}

    def __init__(self, in_features: int, out_features: int, bias: bool = True, std: float | None = None) -> None:
        super().__init__(in_features, out_features, bias)
        normal(self, std)
        self.divide()

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        return functional.linear(input, self.weight, self.bias)


class RowLinear(DistributedModule, nn.Linear):
    """A linear layer divided by inputs, inside of a distributed layer: takes those, gives activations in a layout."""

    divided: ClassVar[dict[str, int]] = {"weight": 1}
    inside: ClassVar[tuple[str, ...]] = ("bias",)

    def __init__(self, in_features: int, out_features: int, bias: bool = True, std: float | None = None) -> None:
        super().__init__(in_features, out_features, bias)
        normal(self, std)
        self.divide()

    def forward(self, input: torch.Tensor, layout: Layout = "own") -> torch.Tensor:
        result = layouts.summed(functional.linear(input, self.weight), layout)
        return result if self.bias is None else result + layouts.shared(self.bias, layout)


def normal(module: nn.Linear, std: float | None) -> None:
    """Initializes by a normal distribution, unless ``std`` is None; biases are 0 then."""
    if std is not None:
        nn.init.normal_(module.weight, std=std)
        if module.bias is not None:
            nn.init.zeros_(module.bias)
