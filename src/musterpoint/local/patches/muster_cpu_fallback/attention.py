"""The attention of the package ``flash_attn`` (version 1), by torch's own, which computes the same."""

from __future__ import annotations

from importlib import import_module
from typing import Any

_torch: Any = import_module("torch")


class FlashAttention(_torch.nn.Module):  # type: ignore[misc]
    """Attention of queries, keys and values that come as one tensor, ``[batch, length, 3, heads, size]``."""

    def __init__(self, softmax_scale: float | None = None, attention_dropout: float = 0.0) -> None:
        super().__init__()
        self.softmax_scale, self.dropout_p = softmax_scale, attention_dropout

    def forward(
        self,
        qkv: Any,
        key_padding_mask: Any = None,
        causal: bool = False,
        cu_seqlens: Any = None,
        max_s: Any = None,
        need_weights: bool = False,
    ) -> Any:
        """The result, ``[batch, length, heads, size]``, and None; ``key_padding_mask`` is true where a word counts."""
        if cu_seqlens is not None or max_s is not None or need_weights:
            raise NotImplementedError(
                "FlashAttention under --cpu-fallback: cu_seqlens, max_s and need_weights aren't taken"
            )
        query, key, value = (each.transpose(1, 2) for each in qkv.unbind(2))
        mask = None
        if key_padding_mask is not None:
            mask = key_padding_mask[:, None, None, :].to(_torch.bool)
            if causal:
                length = query.shape[2]
                mask = mask & _torch.ones(length, length, dtype=_torch.bool, device=query.device).tril()
        result = _torch.nn.functional.scaled_dot_product_attention(
            query,
            key,
            value,
            mask,
            self.dropout_p if self.training else 0.0,
            causal and mask is None,
            scale=self.softmax_scale,
        )
        return result.transpose(1, 2), None
