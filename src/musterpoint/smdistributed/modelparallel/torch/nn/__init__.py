"""Modules of the library. Those that share one layer's tensors over ranks aren't there yet."""

from torch.nn import LayerNorm

from .. import unsupported

FusedLayerNorm = LayerNorm
"""Torch's own is one fused kernel on GPUs, as apex's is."""

DISTRIBUTED = (
    "DistributedModule", "DistributedLinear", "DistributedEmbedding", "DistributedLayerNorm",
    "DistributedAttentionLayer", "DistributedTransformerOutputLayer", "DistributedTransformerLayer",
    "DistributedTransformer", "DistributedTransformerLMHead", "FlashAttentionLayer",
)  # fmt: skip
"""Refused when they are made or derived from."""

globals().update(unsupported.classes("nn", DISTRIBUTED, "use torch.nn's modules; pipeline parallelism divides them"))
