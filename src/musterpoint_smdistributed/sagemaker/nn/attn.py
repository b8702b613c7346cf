"""Attention by torch's ``scaled_dot_product_attention``, which takes the fastest kernel there is."""

from __future__ import annotations

from typing import Any, Sequence

import torch
from torch import nn
from torch.nn.functional import scaled_dot_product_attention

from ..errors import SMPUnsupportedError


class FlashSelfAttention(nn.Module):
    """As many keys and values as queries."""

    def __init__(
        self,
        attention_dropout_prob: float = 0.0,
        scale: float | None = None,
        triton_flash_attention: bool = False,
        use_alibi: bool = False,
    ) -> None:
        super().__init__()
        if use_alibi and not triton_flash_attention:
            raise ValueError("FlashSelfAttention: use_alibi needs triton_flash_attention=True")
        self.dropout, self.scale, self._alibi = attention_dropout_prob, scale, use_alibi

    def forward(
        self,
        qkv: torch.Tensor | Sequence[torch.Tensor],
        attn_mask: torch.Tensor | None = None,
        causal: bool = False,
        cast_dtype: torch.dtype | None = None,
        layout: str = "b h s d",
    ) -> torch.Tensor:
        """``[batch, heads, length, size]``, of queries, keys and values: a tuple, or one tensor with all heads.

        ``attn_mask`` is added to the scores, and needs ``use_alibi``.
        """
        if attn_mask is not None and not self._alibi:
            raise SMPUnsupportedError("FlashSelfAttention: attn_mask needs triton_flash_attention and use_alibi")
        query, key, value = _parts(qkv, 3, layout)
        return _attend(self, query, key, value, attn_mask, causal, cast_dtype)


class FlashGroupedQueryAttention(nn.Module):
    """Fewer keys and values than queries."""

    def __init__(self, attention_dropout_prob: float = 0.0, scale: float | None = None) -> None:
        super().__init__()
        self.dropout, self.scale = attention_dropout_prob, scale

    def forward(
        self,
        q: torch.Tensor,
        kv: torch.Tensor | Sequence[torch.Tensor],
        causal: bool = False,
        cast_dtype: torch.dtype | None = None,
        layout: str = "b s h d",
    ) -> torch.Tensor:
        """``[batch, heads, length, size]``, of queries, and keys and values in one tensor or a tuple."""
        (query,) = _parts((q,), 1, layout)
        key, value = _parts(kv, 2, layout)
        return _attend(self, query, key, value, None, causal, cast_dtype)


def _parts(given: torch.Tensor | Sequence[torch.Tensor], count: int, layout: str) -> list[torch.Tensor]:
    """With heads before the length."""
    if layout not in ("b h s d", "b s h d"):
        raise ValueError(f"layout={layout!r}: expected 'b h s d' or 'b s h d'")
    axis = layout.split().index("h")
    parts = list(given.chunk(count, axis)) if isinstance(given, torch.Tensor) else list(given)
    return [part.transpose(1, 2) if axis == 2 else part for part in parts]


def _attend(
    module: Any,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    mask: torch.Tensor | None,
    causal: bool,
    cast: torch.dtype | None,
) -> torch.Tensor:
    if cast is not None:
        query, key, value = (each.to(cast) for each in (query, key, value))
    if mask is not None and causal:
        length = query.shape[-2]
        hidden = torch.ones(length, key.shape[-2], dtype=torch.bool, device=query.device).triu(1)
        mask = mask.to(query.dtype).masked_fill(hidden, float("-inf"))
        causal = False
    mask = None if mask is None else mask.to(query.dtype)
    dropout = module.dropout if module.training else 0.0
    options = {"scale": module.scale, "enable_gqa": query.shape[1] != key.shape[1]}
    return scaled_dot_product_attention(query, key, value, mask, dropout, causal, **options)
