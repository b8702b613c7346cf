"""What distributed modules compute, written for one process as AWS's documentation describes it; same names."""

import math

import torch
from torch import nn
from torch.nn import functional


class Attention(nn.Module):
    def __init__(self, hidden_size, num_attention_heads, causal_mask_size=None, cross_attention=False,
                 pre_layernorm=False, post_layernorm=True, layernorm_epsilon=1e-5, residual=None, **rest):  # fmt: skip
        super().__init__()
        self.heads, self.size = num_attention_heads, hidden_size // num_attention_heads
        self.cross_attention, self.causal = cross_attention, causal_mask_size is not None
        self.residual = post_layernorm if residual is None else residual
        self.query = nn.Linear(hidden_size, hidden_size)
        self.key = nn.Linear(hidden_size, hidden_size)
        self.value = nn.Linear(hidden_size, hidden_size)
        self.dense = nn.Linear(hidden_size, hidden_size)
        self.pre_layernorm = nn.LayerNorm(hidden_size, eps=layernorm_epsilon) if pre_layernorm else None
        self.layernorm = nn.LayerNorm(hidden_size, eps=layernorm_epsilon) if post_layernorm else None

    def split(self, states):
        return states.reshape(*states.shape[:-1], self.heads, self.size).permute(0, 2, 1, 3)

    def forward(self, inp):
        hidden, *cross, mask = inp
        states = self.pre_layernorm(hidden) if self.pre_layernorm else hidden
        seen = cross[0] if self.cross_attention else states
        query, key, value = self.split(self.query(states)), self.split(self.key(seen)), self.split(self.value(seen))
        scores = query @ key.transpose(-1, -2) / math.sqrt(self.size)
        if self.causal and not self.cross_attention:
            length = scores.shape[-1]
            scores = scores.masked_fill(torch.ones(length, length, dtype=torch.bool).triu(1), -1e4)
        probabilities = functional.softmax(scores + mask, dim=-1)
        context = (probabilities @ value).permute(0, 2, 1, 3).reshape(hidden.shape)
        output = self.dense(context)
        if self.residual:
            output = output + hidden
        return self.layernorm(output) if self.layernorm else output


class Output(nn.Module):
    def __init__(self, hidden_size, intermediate_size, activation="gelu", pre_layernorm=False, post_layernorm=True,
                 layernorm_epsilon=1e-5, residual=None, **rest):  # fmt: skip
        super().__init__()
        self.activation = getattr(functional, activation)
        self.residual = post_layernorm if residual is None else residual
        self.dense1 = nn.Linear(hidden_size, intermediate_size)
        self.dense2 = nn.Linear(intermediate_size, hidden_size)
        self.pre_layernorm = nn.LayerNorm(hidden_size, eps=layernorm_epsilon) if pre_layernorm else None
        self.layernorm = nn.LayerNorm(hidden_size, eps=layernorm_epsilon) if post_layernorm else None

    def forward(self, inp):
        states = self.pre_layernorm(inp) if self.pre_layernorm else inp
        output = self.dense2(self.activation(self.dense1(states)))
        if self.residual:
            output = output + inp
        return self.layernorm(output) if self.layernorm else output


class Layer(nn.Module):
    def __init__(self, add_cross_attention=False, **given):
        super().__init__()
        self.attention, self.output = Attention(**given), Output(**given)
        self.crossed = add_cross_attention
        if self.crossed:
            self.cross_attention = Attention(cross_attention=True, **given)

    def forward(self, inp):
        hidden, *rest = inp
        if not self.crossed:
            return self.output(self.attention((hidden, rest[0]))), *rest
        cross, mask, cross_mask = rest
        hidden = self.cross_attention((self.attention((hidden, mask)), cross, cross_mask))
        return self.output(hidden), *rest


class Transformer(nn.Module):
    def __init__(self, num_layers, **given):
        super().__init__()
        self.seq_layers = nn.Sequential(*(Layer(**given) for _ in range(num_layers)))

    def forward(self, inp):
        return self.seq_layers(inp)


class LanguageModel(nn.Module):
    def __init__(self, hidden_size, vocab_size, num_positions, num_token_types=0, pre_layernorm=False,
                 post_layernorm=True, add_lm_head=True, **given):  # fmt: skip
        super().__init__()
        self.word_embedding = nn.Embedding(vocab_size, hidden_size)
        self.position_embedding = nn.Embedding(num_positions, hidden_size)
        self.token_type_embedding = nn.Embedding(num_token_types, hidden_size) if num_token_types else None
        self.transformer = Transformer(hidden_size=hidden_size, pre_layernorm=pre_layernorm,
                                       post_layernorm=post_layernorm, residual=True, **given)  # fmt: skip
        self.layernorm = nn.LayerNorm(hidden_size) if pre_layernorm and not post_layernorm else None
        self.lm_head = None
        if add_lm_head:
            self.lm_head = nn.Linear(hidden_size, vocab_size, bias=False)
            self.lm_head.weight = self.word_embedding.weight

    def forward(self, inputs):
        ids, mask, types, places, _ = inputs
        places = torch.arange(ids.shape[1]).expand(ids.shape) if places is None else places
        hidden = self.word_embedding(ids) + self.position_embedding(places)
        if types is not None:
            hidden = hidden + self.token_type_embedding(types)
        added = 0.0 if mask is None else mask[:, None, None, :].to(hidden.dtype) * -10000.0
        hidden = self.transformer((hidden, added))[0]
        hidden = self.layernorm(hidden) if self.layernorm else hidden
        return self.lm_head(hidden) if self.lm_head else hidden
