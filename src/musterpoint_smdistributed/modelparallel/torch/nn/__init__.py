"""Modules of the library: those that share one layer's tensors over the ranks of a tensor-parallel group."""

from .attention import DistributedAttentionLayer, FlashAttentionLayer
from .base import DistributedModule
from .layers import DistributedEmbedding, DistributedLayerNorm, DistributedLinear, FusedLayerNorm
from .lm_head import DistributedTransformerLMHead
from .transformer import DistributedTransformer, DistributedTransformerLayer, DistributedTransformerOutputLayer

__all__ = [
    "DistributedAttentionLayer", "DistributedEmbedding", "DistributedLayerNorm", "DistributedLinear",
    "DistributedModule", "DistributedTransformer", "DistributedTransformerLMHead", "DistributedTransformerLayer",
    "DistributedTransformerOutputLayer", "FlashAttentionLayer", "FusedLayerNorm",
]  # fmt: skip
