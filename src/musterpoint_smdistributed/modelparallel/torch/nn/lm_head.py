"""A whole language model whose weights are divided: embeddings, a transformer, and scores for each word."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn import functional

from . import layouts
from .base import DistributedModule, must_divide
from .layers import DistributedEmbedding, DistributedLinear, Dropout, normal
from .transformer import DistributedTransformer

MASKED = -10000.0
"""What is added to the scores of a masked position."""


class DistributedTransformerLMHead(DistributedModule):
    """Embeddings of words, positions and token types, a :class:`.DistributedTransformer`, and a linear layer behind it.

    Args:
        vocab_size, num_positions, num_token_types: how many vectors each embedding has; 0 positions or types: without.
        add_lm_head: else hidden states are returned.
        tie_input_output_embedding: the linear layer has the weight of the word embedding.
        use_lm_head_bias: the linear layer has a bias.
        embedding_dropout_prob: of the sum of the embeddings.
        final_layernorm: normalize the last layer's output; where it isn't given, with ``pre_layernorm`` alone.
        residual: of each layer; true where it isn't given, as language models have it.

    The others are those of :class:`.DistributedTransformer`.
    """

    def __init__(
        self,
        num_layers: int = 12,
        num_attention_heads: int = 32,
        attention_head_size: int | None = None,
        hidden_size: int = 1024,
        intermediate_size: int = 4096,
        vocab_size: int = 30522,
        num_positions: int = 1024,
        attention_dropout_prob: float = 0.1,
        hidden_dropout_prob: float = 0.1,
        activation: str = "gelu",
        layernorm_epsilon: float = 1e-5,
        num_token_types: int = 0,
        causal_mask_size: int | None = None,
        add_cross_attention: bool = False,
        add_lm_head: bool = True,
        initializer_range: float = 0.02,
        use_normal_initialization: bool = False,
        pre_layernorm: bool = False,
        post_layernorm: bool = True,
        tie_input_output_embedding: bool = True,
        use_lm_head_bias: bool = False,
        embedding_dropout_prob: float = 0.0,
        final_layernorm: bool | None = None,
        residual: bool | None = True,
        **more: Any,
    ) -> None:
        sizes = {"num_attention_heads": num_attention_heads, "intermediate_size": intermediate_size}
        must_divide("DistributedTransformerLMHead", hidden_size=hidden_size, **sizes)
        super().__init__()
        self.causal, self.add_cross_attention = causal_mask_size is not None, add_cross_attention

        def embedding(count: int) -> DistributedEmbedding:
            return DistributedEmbedding(count, hidden_size, initializer_range=initializer_range, _skip_allgather=True)

        self.word_embedding = embedding(vocab_size)
        self.position_embedding = embedding(num_positions) if num_positions else None
        self.token_type_embedding = embedding(num_token_types) if num_token_types else None
        self.positions, self.mask, self.merge = _Positions(), _Mask(), _Merge()
        self.dropout = Dropout(embedding_dropout_prob)
        self.transformer = DistributedTransformer(
            num_layers,
            num_attention_heads=num_attention_heads,
            attention_head_size=attention_head_size,
            hidden_size=hidden_size,
            intermediate_size=intermediate_size,
            activation=activation,
            attention_dropout_prob=attention_dropout_prob,
            hidden_dropout_prob=hidden_dropout_prob,
            layernorm_epsilon=layernorm_epsilon,
            initializer_range=initializer_range,
            use_normal_initialization=use_normal_initialization,
            causal_mask_size=causal_mask_size,
            add_cross_attention=add_cross_attention,
            pre_layernorm=pre_layernorm,
            post_layernorm=post_layernorm,
            residual=residual,
            **more,
        )
        last = pre_layernorm and not post_layernorm if final_layernorm is None else final_layernorm
        self.layernorm = nn.LayerNorm(hidden_size, eps=layernorm_epsilon) if last else None
        self.lm_head: DistributedLinear | None = None
        if add_lm_head:
            self.lm_head = DistributedLinear(hidden_size, vocab_size, bias=use_lm_head_bias)
            normal(self.lm_head, initializer_range if use_normal_initialization else None)
            if tie_input_output_embedding:
                self.lm_head.weight = self.word_embedding.weight

    def forward(self, inputs: Any) -> Any:
        """``(input_ids, attention_mask, token_type_ids, position_ids, labels)``, to scores, or to loss and scores.

        With cross-attention ``(input_ids, attention_mask, token_type_ids, position_ids, cross_states, cross_mask,
        labels)``. Only ``input_ids``, (batch, sequence), has to be there. ``attention_mask`` of the same shape is 1
        where a position is masked; one of four axes is added to the scores. ``labels``: the words; those of -100 don't
        count, and with a causal mask a position's label is the next one.
        """
        ids, mask, types, places, cross, cross_mask, labels = self._arguments(inputs)
        parts = self.word_embedding(ids)
        if self.position_embedding is not None:
            parts = parts + self.position_embedding(self.positions(ids) if places is None else places)
        if self.token_type_embedding is not None and types is not None:
            parts = parts + self.token_type_embedding(types)
        hidden = self.dropout(self.merge(parts))
        bias = self.mask(mask, hidden)
        told = (hidden, cross, bias, self.mask(cross_mask, hidden)) if self.add_cross_attention else (hidden, bias)
        hidden = self.transformer(told)[0]
        if self.layernorm is not None:
            hidden = self.layernorm(hidden)
        if self.lm_head is None:
            return hidden
        scores = self.lm_head(hidden)
        return scores if labels is None else (self._loss(scores, labels), scores)

    def _arguments(self, inputs: Any) -> tuple[Any, ...]:
        given = list(inputs) if isinstance(inputs, (tuple, list)) else [inputs]
        first, rest = given[:4], given[4:]
        first += [None] * (4 - len(first))
        if not self.add_cross_attention:
            rest = [None, None, *rest]
        elif len(rest) == 4:  # as the documentation has it: the states twice
            rest = rest[1:]
        return (*first, *rest, *([None] * (3 - len(rest))))

    def _loss(self, scores: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        if self.causal:
            scores, labels = scores[:, :-1], labels[:, 1:]
        return functional.cross_entropy(scores.flatten(0, 1), labels.flatten())


class _Merge(nn.Module):
    """Vectors of which each rank has a part, as the script has activations."""

    def forward(self, parts: torch.Tensor) -> torch.Tensor:
        return layouts.from_parts(parts)


class _Positions(nn.Module):
    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return torch.arange(ids.shape[1], device=ids.device).expand(ids.shape[0], -1)


class _Mask(nn.Module):
    """A mask that is 1 where a position is masked, as what is added to scores."""

    def forward(self, mask: Any, like: torch.Tensor) -> Any:
        if mask is None or mask.dim() != 2:
            return mask
        return mask[:, None, None, :].to(like.dtype) * MASKED
