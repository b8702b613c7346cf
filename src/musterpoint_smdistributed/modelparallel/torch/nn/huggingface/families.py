"""Which models of transformers become smp.nn's under ``smp.tensor_parallelism``, and with which arguments.

The families are those that AWS's documentation names as supported out of the box ("Support for Hugging Face Transformer
Models": GPT-2, BERT, RoBERTa, GPT-J, GPT-Neo), and GPT-NeoX. Arguments: of transformers' configuration classes.
"""

from __future__ import annotations

from typing import Any, Callable, Mapping, NamedTuple

from torch import nn

from ..transformer import ACTIVATIONS
from .models import Encoder, LanguageModel

Arguments = Callable[[Any], "dict[str, Any] | str"]
"""From the configuration to the arguments of smp.nn's module, or to why there are none."""


class Family(NamedTuple):
    """One class of transformers'.

    kind: what takes its place.
    prefix: what the names of the family's table begin with, and those of this class don't.
    ours: the same for names here.
    """

    name: str
    kind: type[LanguageModel] | type[Encoder]
    arguments: Arguments
    prefix: str = ""
    ours: str = ""
    more: Mapping[str, Any] = {}


def _of_n_embd(config: Any) -> dict[str, Any]:
    """What GPT-2 and GPT-J have, by the names that only they use."""
    return {
        "num_layers": config.n_layer, "num_attention_heads": config.n_head, "hidden_size": config.n_embd,
        "intermediate_size": config.n_inner or 4 * config.n_embd, "vocab_size": config.vocab_size,
        "attention_dropout_prob": config.attn_pdrop, "hidden_dropout_prob": config.resid_pdrop,
        "embedding_dropout_prob": config.embd_pdrop, "activation": config.activation_function,
        "layernorm_epsilon": config.layer_norm_epsilon,
    }  # fmt: skip


def _gpt2(config: Any) -> dict[str, Any] | str:
    if config.add_cross_attention:
        return "smp.nn has no cross-attention of GPT-2"
    return {
        **_of_n_embd(config), "num_positions": config.n_positions,
        "scale_attention_scores": config.scale_attn_weights,
        "scale_attn_by_layer_idx": config.scale_attn_by_inverse_layer_idx,
        "attention_in_fp32": config.reorder_and_upcast_attn,
    }  # fmt: skip


def _gptj(config: Any) -> dict[str, Any]:
    size = config.n_embd // config.n_head
    return {
        **_of_n_embd(config), "num_positions": 0, "rotary_dim": config.rotary_dim or size,
        "parallel_attn_output": True, "single_pre_layernorm": True, "use_qkv_bias": False,
        "use_attn_dense_bias": False, "use_lm_head_bias": True, "attention_in_fp32": True,
    }  # fmt: skip


def _gptneo(config: Any) -> dict[str, Any]:
    return {
        "num_layers": config.num_layers, "num_attention_heads": config.num_heads, "hidden_size": config.hidden_size,
        "intermediate_size": config.intermediate_size or 4 * config.hidden_size, "vocab_size": config.vocab_size,
        "num_positions": config.max_position_embeddings, "attention_dropout_prob": config.attention_dropout,
        "hidden_dropout_prob": config.resid_dropout, "embedding_dropout_prob": config.embed_dropout,
        "activation": config.activation_function, "layernorm_epsilon": config.layer_norm_epsilon,
        "window_size": [config.window_size if each == "local" else None for each in config.attention_layers],
        "use_qkv_bias": False, "scale_attention_scores": False, "attention_in_fp32": True,
    }  # fmt: skip


def _gptneox(config: Any) -> dict[str, Any] | str:
    rope = getattr(config, "rope_parameters", None) or getattr(config, "rope_scaling", None) or {}
    kind = rope.get("rope_type", rope.get("type", "default"))
    if kind != "default":
        return f"smp.nn has no rotary positions of the kind {kind!r}"
    size = config.hidden_size // config.num_attention_heads
    part = rope.get("partial_rotary_factor", getattr(config, "rotary_pct", None) or 1.0)
    if int(size * part) % 2:
        return f"smp.nn rotates an even number of channels, and rotary_pct {part} of {size} is odd"
    base = rope.get("rope_theta", getattr(config, "rotary_emb_base", None) or 10000.0)
    return {
        "num_layers": config.num_hidden_layers, "num_attention_heads": config.num_attention_heads,
        "hidden_size": config.hidden_size, "intermediate_size": config.intermediate_size,
        "vocab_size": config.vocab_size, "num_positions": 0, "attention_dropout_prob": config.attention_dropout,
        "hidden_dropout_prob": config.hidden_dropout, "embedding_dropout_prob": config.hidden_dropout,
        "activation": config.hidden_act, "layernorm_epsilon": config.layer_norm_eps, "rotary_dim": int(size * part),
        "rotary_emb_base": base, "gpt_neox_type_rotary": True, "parallel_attn_output": config.use_parallel_residual,
        "use_qkv_bias": config.attention_bias, "use_attn_dense_bias": config.attention_bias,
    }  # fmt: skip


def _bert(config: Any) -> dict[str, Any] | str:
    if config.is_decoder or config.add_cross_attention:
        return "smp.nn's encoder takes the place of one that isn't a decoder"
    if getattr(config, "position_embedding_type", "absolute") != "absolute":
        return f"smp.nn has no positions of the type {config.position_embedding_type!r}"
    return {
        "num_layers": config.num_hidden_layers, "num_attention_heads": config.num_attention_heads,
        "hidden_size": config.hidden_size, "intermediate_size": config.intermediate_size,
        "attention_dropout_prob": config.attention_probs_dropout_prob,
        "hidden_dropout_prob": config.hidden_dropout_prob, "activation": config.hidden_act,
        "layernorm_epsilon": config.layer_norm_eps,
    }  # fmt: skip


def _language(name: str, module: str, begin: str, arguments: Arguments, classes: tuple[str, str]) -> dict[str, Family]:
    """A language model, and the same without its head."""
    whole, inner = (f"transformers.models.{module}.modeling_{module}.{each}" for each in classes)
    return {
        whole: Family(name, LanguageModel, arguments),
        inner: Family(name, LanguageModel, arguments, begin, "", {"add_lm_head": False}),
    }


FAMILIES: dict[str, Family] = {
    **_language("gpt2", "gpt2", "transformer.", _gpt2, ("GPT2LMHeadModel", "GPT2Model")),
    **_language("gptj", "gptj", "transformer.", _gptj, ("GPTJForCausalLM", "GPTJModel")),
    **_language("gptneo", "gpt_neo", "transformer.", _gptneo, ("GPTNeoForCausalLM", "GPTNeoModel")),
    **_language("gptneox", "gpt_neox", "gpt_neox.", _gptneox, ("GPTNeoXForCausalLM", "GPTNeoXModel")),
    "transformers.models.bert.modeling_bert.BertEncoder": Family("bert", Encoder, _bert, "encoder.", "encoder."),
    "transformers.models.roberta.modeling_roberta.RobertaEncoder": Family(
        "roberta", Encoder, _bert, "encoder.", "encoder."
    ),
}
_LANGUAGE = {"causal_mask_size": 1, "pre_layernorm": True, "post_layernorm": False, "use_normal_initialization": True}
"""What all language models here have; how long sequences may be is up to the embeddings."""


def family_of(module: nn.Module) -> Family | None:
    """The family of a module that is of one of transformers' classes itself."""
    kind = type(module)
    return FAMILIES.get(f"{kind.__module__}.{kind.__qualname__}")


def arguments_of(module: nn.Module, family: Family, more: Mapping[str, Any]) -> dict[str, Any] | str:
    """The arguments of what takes its place, of which the script's count ``more``; or why nothing can."""
    config = vars(module).get("config")
    if config is None:
        return "it has no configuration"
    found = family.arguments(config)
    if isinstance(found, str):
        return found
    if issubclass(family.kind, LanguageModel):
        tied = getattr(config, "tie_word_embeddings", True)
        found = {**_LANGUAGE, **found, "tie_input_output_embedding": tied}
    if found["activation"] not in ACTIVATIONS:
        return f"smp.nn has no activation {found['activation']!r:.80}"
    return {**found, **family.more, **more}
