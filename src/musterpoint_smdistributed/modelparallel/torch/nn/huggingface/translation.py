"""State dicts of transformers' models as those of ``smp.nn``'s transformers, and back; by one table for each family.

GPT-2, GPT-J, GPT-Neo and GPT-NeoX become a :class:`.DistributedTransformerLMHead`. Of BERT and RoBERTa the encoder
becomes a :class:`.DistributedTransformer` in the same place, and what is around it keeps its names. Names here:
transformers' modeling files, and AWS's documentation of the library's own modules.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from typing import Any, Collection, Literal, Mapping, NamedTuple

import torch

Kind = Literal["same", "turned", "together", "by_head"]
"""How values change: not; input and output change places, as in transformers' Conv1D; turned, and query, key and value
are one tensor; query, key and value of each head one after the other in one tensor."""
Side = Literal["theirs", "ours"]


class Rule(NamedTuple):
    """A module's name in transformers, and here; ``#`` is the number of a layer.

    Of several rules with one name here the first one leads back, unless the model has the other.
    """

    theirs: str
    ours: str
    kind: Kind = "same"


_LAYER = "transformer.seq_layers.#."
_QKV = (("q_proj", "query"), ("k_proj", "key"), ("v_proj", "value"), ("out_proj", "dense"))
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
    *(Rule(f"transformer.h.#.attn.{theirs}", f"{_LAYER}attention.{ours}") for theirs, ours in _QKV),
    Rule("transformer.h.#.mlp.fc_in", f"{_LAYER}output.dense1"),
    Rule("transformer.h.#.mlp.fc_out", f"{_LAYER}output.dense2"),
    Rule("transformer.ln_f", "layernorm"),
    Rule("lm_head", "lm_head"),
)
GPTNEO = (
    Rule("transformer.wte", "word_embedding"),
    Rule("transformer.wpe", "position_embedding"),
    Rule("transformer.h.#.ln_1", f"{_LAYER}attention.pre_layernorm"),
    *(Rule(f"transformer.h.#.attn.attention.{theirs}", f"{_LAYER}attention.{ours}") for theirs, ours in _QKV),
    Rule("transformer.h.#.ln_2", f"{_LAYER}output.pre_layernorm"),
    Rule("transformer.h.#.mlp.c_fc", f"{_LAYER}output.dense1"),
    Rule("transformer.h.#.mlp.c_proj", f"{_LAYER}output.dense2"),
    Rule("transformer.ln_f", "layernorm"),
    Rule("lm_head", "lm_head"),
)
GPTNEOX = (
    Rule("gpt_neox.embed_in", "word_embedding"),
    Rule("gpt_neox.layers.#.input_layernorm", f"{_LAYER}attention.pre_layernorm"),
    Rule("gpt_neox.layers.#.post_attention_layernorm", f"{_LAYER}output.pre_layernorm"),
    Rule("gpt_neox.layers.#.attention.query_key_value", f"{_LAYER}attention.", "by_head"),
    Rule("gpt_neox.layers.#.attention.dense", f"{_LAYER}attention.dense"),
    Rule("gpt_neox.layers.#.mlp.dense_h_to_4h", f"{_LAYER}output.dense1"),
    Rule("gpt_neox.layers.#.mlp.dense_4h_to_h", f"{_LAYER}output.dense2"),
    Rule("gpt_neox.final_layer_norm", "layernorm"),
    Rule("embed_out", "lm_head"),
    Rule("lm_head", "lm_head"),  # transformers 5
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
TABLES = {"gpt2": GPT2, "gptj": GPTJ, "gptneo": GPTNEO, "gptneox": GPTNEOX, "bert": BERT, "roberta": BERT}
_MADE_AGAIN = re.compile(
    r"(.*\.)?(h\.\d+\.attn\.(attention\.)?|layers\.\d+\.attention\.)(bias|masked_bias)|(.*\.)?rotary_emb\.inv_freq"
)
"""Buffers of older versions: causal masks and frequencies, which are made again."""
_PARTS = ("query", "key", "value")
_COUNT = "num_attention_heads"


def to_ours(family: str, values: Mapping[str, Any], num_attention_heads: int | None = None) -> OrderedDict[str, Any]:
    """The state dict of a model of transformers as of this library's; one that has these names already stays.

    ``num_attention_heads``: of GPT-NeoX, whose tensors don't say it; else those of the wrapped model. Raises
    ValueError: a key is none of that family's models, or the number of heads isn't known.
    """
    if _has_names(family, values, "ours"):
        return OrderedDict(values)
    found: OrderedDict[str, Any] = OrderedDict()
    for key, value in values.items():
        if family not in _INSIDE and _MADE_AGAIN.fullmatch(key):
            continue
        rule = _rule(family, key, "theirs")[0]
        if rule is None:
            found[key] = value
        elif rule.kind in ("together", "by_head"):
            if rule.kind == "together":
                parts = [_turned(each) for each in value.chunk(3, dim=-1)]
            else:
                parts = _parts_of_heads(value, num_attention_heads)
            found.update(zip(names(family, key), parts))
        else:
            found[names(family, key)[0]] = _turned(value) if rule.kind == "turned" else value
    return found


def to_theirs(
    family: str,
    values: Mapping[str, Any],
    max_seq_len: int | None = None,
    num_attention_heads: int | None = None,
    known: Collection[str] = (),
) -> OrderedDict[str, Any]:
    """The opposite; with ``max_seq_len`` GPT-2's and GPT-J's causal masks as well, which older transformers load.
    ``known``: the model's keys in transformers, where versions have several names."""
    if _has_names(family, values, "theirs"):
        return OrderedDict(values)
    found: OrderedDict[str, Any] = OrderedDict()
    layers: dict[str, torch.Tensor] = {}
    for key, value in values.items():
        rule, begin, number, end = _rule(family, key, "ours", known)
        if rule is None:
            found[key] = value
            continue
        name = begin + rule.theirs.replace("#", number) + end
        if rule.kind in ("together", "by_head"):
            if name not in found:
                stem = begin + rule.ours.replace("#", number)
                parts = [_present(values, stem + part + end) for part in _PARTS]
                if rule.kind == "together":
                    found[name] = torch.cat([_turned(each) for each in parts], dim=-1)
                else:
                    count = _heads(parts[0].shape[0], num_attention_heads)
                    heads = [each.reshape(count, -1, *each.shape[1:]) for each in parts]
                    found[name] = torch.stack(heads, dim=1).flatten(0, 2)
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


def names(family: str, key: str) -> list[str]:
    """The keys here of a tensor that has ``key`` in transformers."""
    rule, begin, number, end = _rule(family, key, "theirs")
    if rule is None:
        return [key]
    name = begin + rule.ours.replace("#", number)
    return [name + part + end for part in (_PARTS if rule.kind in ("together", "by_head") else ("",))]


_INSIDE = ("bert", "roberta")
"""Families of which a part is translated, and the rest keeps its names."""


def _has_names(family: str, values: Mapping[str, Any], side: Side) -> bool:
    """Whether all that the table is about has the names of that side already."""
    layers = {"theirs": TABLES[family][2].theirs, "ours": TABLES[family][2].ours}
    stems = {which: name.partition("#")[0] for which, name in layers.items()}
    other: Side = "ours" if side == "theirs" else "theirs"
    keys = list(values)
    return any(stems[side] in key for key in keys) and not any(stems[other] in key for key in keys)


def _rule(family: str, key: str, side: Side, known: Collection[str] = ()) -> tuple[Rule | None, str, str, str]:
    """The rule for a key, what stands before the names, the number of the layer, and ``.weight`` or ``.bias``.

    None where the key stays: around an encoder.
    """
    part_of_model = family in _INSIDE
    matching = []
    for rule in TABLES[family]:
        name = re.escape(getattr(rule, side)).replace(r"\#", r"(\d+)")
        if side == "ours" and rule.kind in ("together", "by_head"):
            name += f"(?:{'|'.join(_PARTS)})"
        prefix = r"(|.*\.)" if part_of_model else r"()"
        match = re.fullmatch(prefix + name + r"(\.weight|\.bias)", key)
        if match:
            begin, *number, end = match.groups()
            matching.append((rule, begin, "".join(number), end))
    if matching:
        return next((each for each in matching if each[0].theirs + each[3] in known), matching[0])
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


def _parts_of_heads(value: torch.Tensor, heads: int | None) -> list[torch.Tensor]:
    """Queries, keys and values of (heads · 3 · head size, …)."""
    count = _heads(value.shape[0] // 3, heads)
    apart = value.reshape(count, 3, -1, *value.shape[1:])
    return [apart[:, part].flatten(0, 1).contiguous() for part in range(3)]


def _heads(channels: int, given: int | None) -> int:
    count = given if given is not None else _heads_of_the_model()
    if count is None:
        raise ValueError(
            f"{_COUNT}: GPT-NeoX has query, key and value of each head in one tensor, and a state dict doesn't say how "
            f"many heads there are: pass {_COUNT}=…, or wrap the model first"
        )
    if count < 1 or channels % count:
        raise ValueError(f"{_COUNT}={count}: expected a number that divides {channels}, the channels of all heads")
    return count


def _heads_of_the_model() -> int | None:
    from ...state import state
    from ..attention import DistributedAttentionLayer

    modules = [] if state.model is None else state.model.modules()
    return next((each.num_attention_heads for each in modules if isinstance(each, DistributedAttentionLayer)), None)
