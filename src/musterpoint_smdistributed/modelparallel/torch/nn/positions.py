"""Positions as attention may use them instead of an embedding: rotated queries and keys, or biases by distance."""

from __future__ import annotations

import math

import torch


def rotated(heads: torch.Tensor, dims: int, base: float = 10000.0, halves: bool = False) -> torch.Tensor:
    """Queries or keys of shape (batch, heads, sequence, head size), with their first ``dims`` channels rotated.

    Args:
        halves: a channel's partner is the one half of ``dims`` further (GPT-NeoX), and not the next one (GPT-J).
    """
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

    Args:
        most: the exponent of the last head's slope, ``alibi_bias_max``.
        like: a tensor of the type and device.
    """
    power = 2 ** math.ceil(math.log2(heads))
    exponents = torch.arange(1, power + 1, device=like.device, dtype=torch.float64) * (most / power)
    slopes = torch.exp2(-exponents)
    if power != heads:
        slopes = torch.cat((slopes[1::2], slopes[::2]))[:heads]
    distances = torch.arange(1 - length, 1, device=like.device, dtype=torch.float64)
    return (slopes.view(1, heads, 1, 1) * distances).to(like.dtype)
