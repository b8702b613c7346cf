"""Attention whose heads are divided over the ranks.

What it computes is the reference implementation of ``DistributedAttentionLayer`` in AWS's documentation ("PyTorch API
for Tensor Parallelism", appendix).
"""

from __future__ import annotations

import contextlib
import math
from typing import Any, cast

import torch
from torch import nn
from torch.nn import functional

from ..agreement import apart
from ..state import state
from . import layouts
from .base import DistributedModule, must_divide, refuse_unknown
from .layers import ColumnLinear, Dropout, InnerLayerNorm, RowLinear
from .layouts import Enter, Entered, Layout


def rotated(heads: torch.Tensor, dims: int, base: float = 10000.0, halves: bool = False) -> torch.Tensor:
    """Queries or keys of shape (batch, heads, sequence, head size), with their first ``dims`` channels rotated.
    ``halves``: a channel's partner is the one half of ``dims`` further (GPT-NeoX), and not the next one (GPT-J)."""
    length = heads.shape[2]
    wide = torch.promote_types(heads.dtype, torch.float32)
    steps = torch.arange(0, dims, 2, device=heads.device, dtype=wide) / dims
    angles = torch.arange(length, device=heads.device, dtype=wide)[:, None] * base**-steps
    turned, rest = heads[..., :dims], heads[..., dims:]
    if halves:
        sine, cosine = angles.sin().repeat(1, 2), angles.cos().repeat(1, 2)
        first, second = turned.chunk(2, dim=-1)
        partner = torch.cat((-second, first), dim=-1)
    else:
        sine, cosine = angles.sin().repeat_interleave(2, 1), angles.cos().repeat_interleave(2, 1)
        partner = torch.stack((-turned[..., 1::2], turned[..., ::2]), dim=-1).flatten(-2)
    turned = turned * cosine.to(heads.dtype) + partner * sine.to(heads.dtype)
    return torch.cat((turned, rest), dim=-1)


def distance_bias(heads: int, length: int, most: float, like: torch.Tensor) -> torch.Tensor:
    """ALiBi (Press et al. 2022): what is added to the scores, of shape (1, heads, 1, length).

    ``most``: the exponent of the last head's slope, ``alibi_bias_max``. ``like``: a tensor of the type and device.
    """
    power = 2 ** math.ceil(math.log2(heads))
    exponents = torch.arange(1, power + 1, device=like.device, dtype=torch.float64) * (most / power)
    slopes = torch.exp2(-exponents)
    if power != heads:
        slopes = torch.cat((slopes[1::2], slopes[::2]))[:heads]
    distances = torch.arange(1 - length, 1, device=like.device, dtype=torch.float64)
    return (slopes.view(1, heads, 1, 1) * distances).to(like.dtype)


class FlashAttentionLayer(nn.Module):
    """Attention of queries, keys and values that are there already; torch picks the kernel.

    Args:
        attention_head_size: taken; the tensor says it.
        scale_attention_scores: divide scores by the root of the head size.
        scale_attn_by_layer_idx: and by ``layer_idx`` + 1.
        scale: what scores are multiplied by, instead.
        triton_flash_attention: taken, and without effect.
        use_alibi: add a bias by distance to the scores.
        alibi_bias_max: its steepness.
    """

    def __init__(
        self,
        attention_dropout_prob: float = 0.1,
        attention_head_size: int | None = None,
        scale_attention_scores: bool = True,
        scale_attn_by_layer_idx: bool = False,
        layer_idx: int | None = None,
        scale: float | None = None,
        triton_flash_attention: bool = False,
        use_alibi: bool = False,
        alibi_bias_max: float = 8,
    ) -> None:
        super().__init__()
        self.attention_dropout_prob = attention_dropout_prob
        self.scale_attention_scores, self.scale = scale_attention_scores, scale
        self.layer_idx = layer_idx if scale_attn_by_layer_idx else None
        self.use_alibi, self.alibi_bias_max = use_alibi, alibi_bias_max

    def forward(self, qkv: torch.Tensor, attn_mask: Any = None, causal: bool = False) -> torch.Tensor:
        """(batch, sequence, 3, heads, size) to (batch, sequence, heads, size); the mask is added to the scores."""
        query, key, value = (each.transpose(1, 2) for each in qkv.unbind(2))
        scale = self.scale
        if scale is None:
            scale = score_scale(query.shape[-1] if self.scale_attention_scores else 1, self.layer_idx)
        bias = attn_mask
        if self.use_alibi:
            distances = distance_bias(query.shape[1], key.shape[2], self.alibi_bias_max, query)
            bias = distances if bias is None else distances + bias
        dropped = self.attention_dropout_prob if self.training else 0.0
        return attend(query, key, value, bias, causal, scale, dropped).transpose(1, 2)


class DistributedAttentionLayer(DistributedModule):
    """Attention, a linear layer behind it, dropout, residual and layer normalization; each rank has some of the heads.

    Args:
        num_attention_heads, hidden_size: of all ranks together.
        attention_head_size: where it isn't given, ``hidden_size`` divided by the heads.
        causal_mask_size: not None: positions see only those before them.
        window_size: and of those only so many, itself among them (the local attention of GPT-Neo).
        pre_layernorm, post_layernorm: normalize the input; normalize the sum of input and output.
        residual: whether the input is added to the output; where it isn't given it is with ``post_layernorm`` alone, as
            in the documented reference.
        use_qkv_bias, use_attn_dense_bias: whether those linear layers have biases.
        rotary_dim: how many channels of a head are rotated by position; ``gpt_neox_type_rotary`` as GPT-NeoX does.
        scale_attention_scores, scale_attn_by_layer_idx, layer_idx: as in :class:`FlashAttentionLayer`.
        attention_in_fp32: scores in single precision, where the model has less.
    """

    def __init__(
        self,
        num_attention_heads: int = 32,
        attention_head_size: int | None = None,
        hidden_size: int = 1024,
        attention_dropout_prob: float = 0.1,
        hidden_dropout_prob: float = 0.1,
        layernorm_epsilon: float = 1e-5,
        initializer_range: float = 0.02,
        use_normal_initialization: bool = False,
        cross_attention: bool = False,
        causal_mask_size: int | None = None,
        pre_layernorm: bool = False,
        post_layernorm: bool = True,
        residual: bool | None = None,
        use_qkv_bias: bool = True,
        use_attn_dense_bias: bool = True,
        rotary_dim: int | None = None,
        gpt_neox_type_rotary: bool = False,
        rotary_emb_base: float = 10000.0,
        scale_attention_scores: bool = True,
        scale_attn_by_layer_idx: bool = False,
        layer_idx: int | None = None,
        use_alibi: bool = False,
        alibi_bias_max: float = 8,
        attention_in_fp32: bool = False,
        window_size: int | None = None,
        **hints: Any,
    ) -> None:
        refuse_unknown("DistributedAttentionLayer", hints)
        must_divide("DistributedAttentionLayer", num_attention_heads=num_attention_heads)
        super().__init__()
        size = attention_head_size or hidden_size // num_attention_heads
        total, std = num_attention_heads * size, initializer_range if use_normal_initialization else None
        self.num_attention_heads, self.attention_head_size, self.hidden_size = num_attention_heads, size, hidden_size
        self.local_heads = num_attention_heads // layouts.degree()
        self.cross_attention, self.causal = cross_attention, causal_mask_size is not None
        self.residual = post_layernorm if residual is None else residual
        self.rotary = (rotary_dim, rotary_emb_base, gpt_neox_type_rotary) if rotary_dim else None
        self.scale = score_scale(size if scale_attention_scores else 1, layer_idx if scale_attn_by_layer_idx else None)
        self.alibi = alibi_bias_max if use_alibi else None
        self.attention_in_fp32, self.window_size = attention_in_fp32, window_size
        self.query = ColumnLinear(hidden_size, total, use_qkv_bias, std)
        self.key = ColumnLinear(hidden_size, total, use_qkv_bias, std)
        self.value = ColumnLinear(hidden_size, total, use_qkv_bias, std)
        self.dense = RowLinear(total, hidden_size, use_attn_dense_bias, std)
        self.dropout1 = Dropout(attention_dropout_prob)
        self.dropout2 = Dropout(hidden_dropout_prob)
        self.pre_layernorm = InnerLayerNorm(hidden_size, layernorm_epsilon) if pre_layernorm else None
        self.layernorm = InnerLayerNorm(hidden_size, layernorm_epsilon) if post_layernorm else None
        self.enter = Enter()

    def forward(self, inp: Any) -> torch.Tensor:
        """``(hidden_states, attention_mask)``, or ``(hidden_states, cross_states, attention_mask)``, to hidden states.

        Hidden states are (batch, sequence, hidden_size); the mask is added to the scores, and of a shape that
        broadcasts to (batch, heads, sequence, sequence), such as (batch, 1, 1, sequence).
        """
        if isinstance(inp, Entered):
            return self.within(inp)
        hidden, *cross, mask = inp
        entered: Entered = self.enter(hidden, *((None, cross[0], mask) if self.cross_attention else (mask,)))
        return layouts.leave(self.within(entered), entered.layout)

    def within(self, entered: Entered) -> torch.Tensor:
        """The same in a layout."""
        hidden, layout = entered.hidden, entered.layout
        output = self.computed(self.normalized(hidden, layout), entered)
        if self.residual:
            output = output + hidden
        return output if self.layernorm is None else self.layernorm(output, layout)

    def normalized(self, hidden: torch.Tensor, layout: Layout) -> torch.Tensor:
        """What the linear layers get."""
        return hidden if self.pre_layernorm is None else self.pre_layernorm(hidden, layout)

    def computed(self, states: torch.Tensor, entered: Entered) -> torch.Tensor:
        """Without residual and normalization."""
        layout = entered.layout
        states = layouts.gathered(states, layout)
        looked_at, mask = states, entered.mask
        if self.cross_attention:
            looked_at = layouts.gathered(entered.cross, "whole" if layout == "sequence" else layout)
            mask = entered.cross_mask
        query, key, value = (
            self._heads(linear(inputs))
            for linear, inputs in ((self.query, states), (self.key, looked_at), (self.value, looked_at))
        )
        if self.rotary is not None:
            query, key = (rotated(each, *self.rotary) for each in (query, key))
        bias = self._bias(mask, query, key.shape[2])
        causal = self.causal and not self.cross_attention
        dropped = self.dropout1.p if self.training else 0.0
        with apart() if dropped else contextlib.nullcontext():
            context = attend(
                query, key, value, bias, causal, self.scale, dropped, self.attention_in_fp32, self.window_size
            )
        return cast(torch.Tensor, self.dropout2(self.dense(context.transpose(1, 2).flatten(2), layout), layout))

    def _heads(self, states: torch.Tensor) -> torch.Tensor:
        """(batch, sequence, channels of this rank) to (batch, heads of this rank, sequence, head size)."""
        return states.view(*states.shape[:-1], self.local_heads, self.attention_head_size).transpose(1, 2)

    def _bias(self, mask: Any, query: torch.Tensor, length: int) -> Any:
        """What is added to the scores of this rank's heads."""
        first = state.group("tp").rank * self.local_heads
        if isinstance(mask, torch.Tensor) and mask.dim() > 2 and mask.shape[-3] == self.num_attention_heads > 1:
            mask = mask.narrow(-3, first, self.local_heads)
        if self.alibi is None:
            return mask
        distances = distance_bias(self.num_attention_heads, length, self.alibi, query)
        distances = distances.narrow(1, first, self.local_heads)
        return distances if mask is None else distances + mask


def score_scale(head_size: int, layer_idx: int | None) -> float:
    """What scores are multiplied by."""
    return 1 / math.sqrt(head_size) / (1 if layer_idx is None else layer_idx + 1)


def attend(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    bias: Any,
    causal: bool,
    scale: float,
    dropped: float,
    in_fp32: bool = False,
    window: int | None = None,
) -> torch.Tensor:
    """Torch's attention, of (batch, heads, sequence, head size); ``bias`` is added to the scores.

    Args:
        in_fp32: in single precision, where the tensors have less.
        window: with ``causal``, how many positions each one sees.
    """
    kind = query.dtype
    if in_fp32 and kind in (torch.float16, torch.bfloat16):
        query, key, value = query.float(), key.float(), value.float()
    if bias is not None:
        bias = bias.to(query.dtype) if isinstance(bias, torch.Tensor) else query.new_tensor(float(bias))
        if bias.dim() < 2:
            bias = bias.expand(1, key.shape[2])
    if causal and window is not None and window < key.shape[2]:
        bias = _causal(query, key, window) + (0 if bias is None else bias)
    elif causal and bias is not None:
        bias = _causal(query, key) + bias
    context = functional.scaled_dot_product_attention(
        query, key, value, attn_mask=bias, dropout_p=dropped, is_causal=causal and bias is None, scale=scale
    )
    return context.to(kind)


def _causal(query: torch.Tensor, key: torch.Tensor, window: int | None = None) -> torch.Tensor:
    """Finite, so that a row whose other positions are masked as well has probabilities."""
    lowest = torch.finfo(query.dtype).min / 2
    full = torch.full((query.shape[2], key.shape[2]), lowest, dtype=query.dtype, device=query.device)
    return full.triu(1) if window is None else full.triu(1) + full.tril(-window)
