"""Layers whose tensors are divided over the ranks, and what stands between them in a transformer."""

from __future__ import annotations

from typing import Any, ClassVar

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional

from ..agreement import apart
from ..state import state
from . import layouts
from .base import DistributedModule, must_divide
from .layouts import Layout

FusedLayerNorm = nn.LayerNorm
"""Torch's own is one fused kernel on GPUs, as apex's is."""


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
        parts = layouts.to_parts(input[None] if alone else input)
        result = layouts.summed_to_script(functional.linear(parts, self.weight))
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


class DistributedEmbedding(DistributedModule, nn.Embedding):
    """``torch.nn.Embedding`` of which each rank has a part of every vector.

    Args:
        _weight: whole values, else drawn from a normal distribution.
        initializer_range: its standard deviation.
        _skip_allgather: return this rank's part of the vectors, of the batch of all ranks.
        _skip_scatter_and_merge: the indices are those of the batch of all ranks already, and so are the vectors.
    """

    divided: ClassVar[dict[str, int]] = {"weight": 1}

    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        padding_idx: int | None = None,
        max_norm: float | None = None,
        norm_type: float = 2.0,
        scale_grad_by_freq: bool = False,
        sparse: bool = False,
        _weight: torch.Tensor | None = None,
        initializer_range: float = 0.02,
        _skip_allgather: bool = False,
        _skip_scatter_and_merge: bool = False,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        must_divide("DistributedEmbedding", embedding_dim=embedding_dim)
        self.initializer_range = initializer_range
        place = {"device": device, "dtype": dtype}
        lengths = (padding_idx, max_norm, norm_type)
        super().__init__(num_embeddings, embedding_dim, *lengths, scale_grad_by_freq, sparse, _weight, **place)
        self._skip_allgather, self._skip_merge = _skip_allgather, _skip_scatter_and_merge
        self.divide()

    def reset_parameters(self) -> None:
        nn.init.normal_(self.weight, std=self.initializer_range)
        self._fill_padding_idx_with_zero()

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        """Indices of any shape, the same on all ranks of the group, and vectors (…, embedding_dim)."""
        alone = input.dim() == 0
        if alone:
            input = input[None]
        # by batches, since the frequencies by which gradients are divided are those of one batch
        counted = self.scale_grad_by_freq and not state.cfg.prescaled_batch and not self._skip_merge
        indices = input if self._skip_merge else layouts.batches_of_all(input)
        if self.max_norm is not None:
            self._renormalize(indices)
        batches = indices.chunk(layouts.degree()) if counted else [indices]
        options = (self.weight, self.padding_idx, None, self.norm_type, self.scale_grad_by_freq, self.sparse)
        vectors = [functional.embedding(batch, *options) for batch in batches]
        result = torch.cat(vectors) if counted else vectors[0]
        if self._skip_allgather:
            return result
        result = layouts.from_rows(result) if self._skip_merge else layouts.from_parts(result)
        return result[0] if alone else result

    def _renormalize(self, indices: torch.Tensor) -> None:
        """Scales the vectors that are used and longer than ``max_norm``, by the length of all parts together."""
        assert self.max_norm is not None
        with torch.no_grad():
            used = torch.unique(indices)
            powers = self.weight[used].abs().pow(self.norm_type).sum(dim=1)
            if layouts.degree() > 1:
                dist.all_reduce(powers, group=state.group("tp").process_group)
            norms = powers.pow(1 / self.norm_type)
            scale = torch.where(norms > self.max_norm, self.max_norm / (norms + 1e-7), torch.ones_like(norms))
            self.weight[used] *= scale[:, None]


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


class Dropout(nn.Dropout):
    """Dropout of activations in a layout."""

    def forward(self, input: torch.Tensor, layout: Layout = "own") -> torch.Tensor:
        if not self.training or self.p == 0:
            return input
        if layout == "sequence":
            with apart():
                return super().forward(input)
        return super().forward(input)
