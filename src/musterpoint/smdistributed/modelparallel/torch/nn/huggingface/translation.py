"""State dicts of transformers' models as those of ``smp.nn``'s transformers, and back; by one table for each family.

GPT-2 and GPT-J become a :class:`.DistributedTransformerLMHead`. Of BERT and RoBERTa the encoder becomes a
:class:`.DistributedTransformer` in the same place, and what is around it keeps its names. Names here: transformers'
modeling files, and AWS's documentation of the library's own modules.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from typing import Any, Literal, Mapping, NamedTuple

import torch

Kind = Literal["same", "turned", "together"]
"""How values change: not; input and output change places, as in transformers' Conv1D; turned, and query, key and value
are one tensor."""


class Rule(NamedTuple):
    """A module's name in transformers, and here; ``#`` is the number of a layer."""

    theirs: str
    ours: str
    kind: Kind = "same"


_LAYER = "transformer.seq_layers.#."
GPT2 = (
    Rule("transformer.wte", "word_embedding"),
    Rule("transformer.wpe", "position_embedding"),
    Rule("transformer.h.#.ln_1", f"{_LAYER}attention.pre_layernorm"),
    Rule("transformer.h.#.attn.c_attn", f"{_LAYER}attention.", "together"),
    Rule("transformer.h.#.attn.c_proj", f"{_LAYER}attention.dense", "turned"),
    Rule("transformer.h.#.ln_2", f"{_LAYER}output.pre_layernorm"),
    Rule("transformer.h.#.mlp.c_fc", f"{_LAYER}output.dense1", "turned"),
    Rule("transformer.h.#.mlp.c_proj", f"{_LAYER}output.dense2", "turned"),
    Rule("transformer.ln_f", "layernorm"),
    Rule("lm_head", "lm_head"),
)
GPTJ = (
    Rule("transformer.wte", "word_embedding"),
    Rule("transformer.h.#.ln_1", f"{_LAYER}attention.pre_layernorm"),
    *(
        Rule(f"transformer.h.#.attn.{theirs}", f"{_LAYER}attention.{ours}")
        for theirs, ours in (("q_proj", "query"), ("k_proj", "key"), ("v_proj", "value"), ("out_proj", "dense"))
    ),
    Rule("transformer.h.#.mlp.fc_in", f"{_LAYER}output.dense1"),
    Rule("transformer.h.#.mlp.fc_out", f"{_LAYER}output.dense2"),
    Rule("transformer.ln_f", "layernorm"),
    Rule("lm_head", "lm_head"),
)
BERT = (
    *(
        Rule(f"encoder.layer.#.attention.self.{each}", f"encoder.seq_layers.#.attention.{each}")
        for each in ("query", "key", "value")
    ),
    Rule("encoder.layer.#.attention.output.dense", "encoder.seq_layers.#.attention.dense"),
    Rule("encoder.layer.#.attention.output.LayerNorm", "encoder.seq_layers.#.attention.layernorm"),
    Rule("encoder.layer.#.intermediate.dense", "encoder.seq_layers.#.output.dense1"),
    Rule("encoder.layer.#.output.dense", "encoder.seq_layers.#.output.dense2"),
    Rule("encoder.layer.#.output.LayerNorm", "encoder.seq_layers.#.output.layernorm"),
)
TABLES = {"gpt2": GPT2, "gptj": GPTJ, "bert": BERT, "roberta": BERT}
_MASKS = re.compile(r"(.*\.)?h\.\d+\.attn\.(bias|masked_bias)")
"""Buffers of older versions: causal masks, which are made again."""
_PARTS = ("query", "key", "value")


def to_ours(family: str, values: Mapping[str, Any]) -> OrderedDict[str, Any]:
    """The state dict of a model of transformers as of this library's.

    Raises:
        ValueError: a key is none of that family's models.
    """
    found: OrderedDict[str, Any] = OrderedDict()
    for key, value in values.items():
        if family in ("gpt2", "gptj") and _MASKS.fullmatch(key):
            continue
        rule, begin, number, end = _rule(family, key, "theirs")
        if rule is None:
            found[key] = value
        elif rule.kind == "together":
            for part, each in zip(_PARTS, value.chunk(3, dim=-1)):
                found[begin + rule.ours.replace("#", number) + part + end] = _turned(each)
        else:
            name = begin + rule.ours.replace("#", number) + end
            found[name] = _turned(value) if rule.kind == "turned" else value
    return found


def to_theirs(family: str, values: Mapping[str, Any], max_seq_len: int | None = None) -> OrderedDict[str, Any]:
    """The opposite; with ``max_seq_len`` GPT-2's and GPT-J's causal masks as well, which older transformers load.

    Raises:
        ValueError: a key is none of that family's models, or of query, key and value one is missing.
    """
    found: OrderedDict[str, Any] = OrderedDict()
    layers: dict[str, torch.Tensor] = {}
    for key, value in values.items():
        rule, begin, number, end = _rule(family, key, "ours")
        if rule is None:
            found[key] = value
            continue
        name = begin + rule.theirs.replace("#", number) + end
        if rule.kind == "together":
            if name not in found:
                stem = begin + rule.ours.replace("#", number)
                found[name] = torch.cat([_turned(_present(values, stem + part + end)) for part in _PARTS], dim=-1)
        else:
            found[name] = _turned(value) if rule.kind == "turned" else value
        if name.endswith(".ln_1.weight"):
            layers[name[: -len("ln_1.weight")]] = value
    if max_seq_len is not None and family in ("gpt2", "gptj"):
        for layer, like in layers.items():
            full = torch.ones(1, 1, max_seq_len, max_seq_len, dtype=torch.uint8, device=like.device)
            found[f"{layer}attn.bias"] = full.tril()
            found[f"{layer}attn.masked_bias"] = torch.tensor(-1e4 if family == "gpt2" else -1e9, device=like.device)
    return found


def _rule(family: str, key: str, side: Literal["theirs", "ours"]) -> tuple[Rule | None, str, str, str]:
    """The rule for a key, what stands before the names, the number of the layer, and ``.weight`` or ``.bias``.

    None where the key stays: around an encoder.
    """
    part_of_model = family in ("bert", "roberta")
    for rule in TABLES[family]:
        name = re.escape(getattr(rule, side)).replace(r"\#", r"(\d+)")
        if side == "ours" and rule.kind == "together":
            name += f"(?:{'|'.join(_PARTS)})"
        prefix = r"(|.*\.)" if part_of_model else r"()"
        match = re.fullmatch(prefix + name + r"(\.weight|\.bias)", key)
        if match:
            begin, *number, end = match.groups()
            return rule, begin, "".join(number), end
    if part_of_model and "encoder.layer." not in key and "encoder.seq_layers." not in key:
        return None, "", "", ""
    raise ValueError(
        f"{key!r} is no key of a {family} model's state dict in {'transformers' if side == 'theirs' else 'smp.nn'}"
    )


def _present(values: Mapping[str, Any], key: str) -> Any:
    if key not in values:
        raise ValueError(f"the state dict has no {key!r}: query, key and value belong together")
    return values[key]


def _turned(value: torch.Tensor) -> torch.Tensor:
    return value.t().contiguous() if value.dim() == 2 else value
