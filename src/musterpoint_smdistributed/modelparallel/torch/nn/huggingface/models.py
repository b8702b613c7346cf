"""Modules in the place of transformers' own, called as those are, that compute with smp.nn's transformers."""

from __future__ import annotations

import importlib
import inspect
from collections import OrderedDict
from typing import Any, Callable, Collection, Mapping, NamedTuple

import torch
from torch import nn
from torch.nn import functional

from ....backend.exceptions import SMPUnsupportedError
from ... import distributed_parameters
from ..lm_head import DistributedTransformerLMHead
from ..transformer import DistributedTransformer
from . import translation

WITHOUT_EFFECT = frozenset({"use_cache", "return_dict", "cache_position", "num_items_in_batch"})
"""Arguments of transformers' models that training may pass; a model here has no caches."""


class Place(NamedTuple):
    """Which of transformers' modules one of these takes the place of.

    family: of :data:`.translation.TABLES`.
    names: the keys of its state dict in transformers.
    order: the arguments of its ``forward`` there.
    prefix: what the names of the family's table begin with and those of this module don't: ``encoder.``
    ours: the same for the names here.
    """

    family: str
    names: frozenset[str]
    order: tuple[str, ...]
    prefix: str
    ours: str


class Translated:
    """What the modules here have in common: names and arguments of their own in transformers."""

    place: Place
    config: Any

    def takes_place_of(self, module: nn.Module, family: str, prefix: str, ours: str) -> None:
        """Says what the module was, and takes its values."""
        order = [*inspect.signature(type(module).forward).parameters][1:]
        values = module.state_dict()
        self.config = vars(module)["config"]
        self.place = Place(family, frozenset(values), tuple(order), prefix, ours)
        assert isinstance(self, nn.Module)
        self.added, self.places, self.mean = _Added(), _Places(), _Mean()
        self.load_state_dict(self.to_ours(values))
        made = dict(self.named_parameters(remove_duplicate=False))
        for name, old in module.named_parameters(remove_duplicate=False):
            own = translation.names(family, prefix + name)
            distributed_parameters.replace(old, [made[each.removeprefix(ours)] for each in own])
        self.train(module.training)

    def to_theirs(self, values: Mapping[str, Any]) -> OrderedDict[str, Any]:
        """Its state dict with the names and shapes of transformers."""
        family, names, _, prefix, ours = self.place
        given = {ours + key: value for key, value in values.items()}
        known = {prefix + name for name in names}
        made = translation.to_theirs(family, given, None, self.config.num_attention_heads, known)
        return OrderedDict((key.removeprefix(prefix), value) for key, value in made.items())

    def to_ours(self, values: Mapping[str, Any]) -> OrderedDict[str, Any]:
        """The opposite; of a state dict that has the names here already, the very same."""
        family, names, _, prefix, ours = self.place
        given = {prefix + key if key in names else ours + key: value for key, value in values.items()}
        made = translation.to_ours(family, given, self.config.num_attention_heads)
        return OrderedDict((key.removeprefix(ours), value) for key, value in made.items())

    def _named(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        """The arguments of a call, without those that are None."""
        given = {**dict(zip(self.place.order, args)), **kwargs}
        return {name: value for name, value in given.items() if value is not None}


class LanguageModel(Translated, DistributedTransformerLMHead):
    """In the place of ``GPT2LMHeadModel``, ``GPT2Model`` and the like."""

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """As transformers' model: ``attention_mask`` is 0 where a position is masked, and the result is its output."""
        given = self._named(args, kwargs)
        ids = given.pop("input_ids", None)
        if isinstance(ids, tuple):  # as DistributedTransformerLMHead is called
            return super().forward(ids)
        if ids is None:
            raise SMPUnsupportedError(f"input_ids: {_NAME} needs them, and has got {', '.join(given) or 'nothing'}")
        _refuse(given, {*WITHOUT_EFFECT, "attention_mask", "position_ids", "labels"})
        places, mask = given.get("position_ids"), given.get("attention_mask")
        if self.position_embedding is None and places is not None:
            ids = self.places(ids, places)
        bias = None if mask is None else self.added(mask, self.word_embedding.weight)
        scores = super().forward((ids, bias, None, places))
        outputs = importlib.import_module("transformers.modeling_outputs")
        if self.lm_head is None:
            return _returned(outputs.BaseModelOutputWithPastAndCrossAttentions(last_hidden_state=scores), given)
        loss = self.mean(scores, given["labels"], given.get("num_items_in_batch")) if "labels" in given else None
        return _returned(outputs.CausalLMOutputWithCrossAttentions(loss=loss, logits=scores), given)


class Encoder(Translated, DistributedTransformer):
    """In the place of ``BertEncoder`` and the like, inside of transformers' model."""

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """As transformers' encoder."""
        given = self._named(args, kwargs)
        hidden = given.pop("hidden_states")
        if isinstance(hidden, tuple):  # as DistributedTransformer is called
            return super().forward(hidden)
        heads = given.get("head_mask")
        if isinstance(heads, (list, tuple)) and all(each is None for each in heads):
            del given["head_mask"]
        _refuse(given, {*WITHOUT_EFFECT, "attention_mask", "position_ids"})
        mask = given.get("attention_mask")
        outputs = importlib.import_module("transformers.modeling_outputs")
        found = super().forward((hidden, None if mask is None else self.added(mask, hidden)))[0]
        return _returned(outputs.BaseModelOutputWithPastAndCrossAttentions(last_hidden_state=found), given)


def to_theirs(root: nn.Module, values: Mapping[str, Any]) -> Mapping[str, Any]:
    """The state dict of a model, with transformers' names of the modules here."""
    return _each(root, values, lambda module, own: module.to_theirs(own))


def to_ours(root: nn.Module, values: Mapping[str, Any]) -> Mapping[str, Any]:
    """The opposite; names that are ours already stay."""
    return _each(root, values, lambda module, own: module.to_ours(own))


def _each(root: nn.Module, values: Mapping[str, Any], translate: Callable[[Translated, Any], Any]) -> Mapping[str, Any]:
    found = [(f"{name}." if name else "", each) for name, each in root.named_modules() if isinstance(each, Translated)]
    if not found:
        return values
    made = OrderedDict(values)
    for prefix, module in found:
        own = {key: made.pop(key) for key in list(made) if key.startswith(prefix)}
        translated = translate(module, {key[len(prefix) :]: value for key, value in own.items()})
        made.update((prefix + key, value) for key, value in translated.items())
    return made


_NAME = "smp.nn's transformer, which takes the place of transformers' own under smp.tensor_parallelism,"


def _refuse(given: Mapping[str, Any], known: Collection[str]) -> None:
    """Raises where an argument has a value that would change what is returned."""
    for name, value in given.items():
        if name not in known and not (isinstance(value, (bool, int)) and not value):
            raise SMPUnsupportedError(
                f"{name}: {_NAME} doesn't follow it; leave it out, or make the model with "
                "smp.tensor_parallelism(enabled=False)"
            )


def _returned(output: Any, given: Mapping[str, Any]) -> Any:
    return output if given.get("return_dict", True) else output.to_tuple()


class _Mean(nn.Module):
    """The loss of the next word, in single precision at least; ``count``: of all words that it is a mean over.

    This and the others are modules, so that a pipeline may follow ``forward`` without looking into them.
    """

    def forward(self, scores: torch.Tensor, labels: torch.Tensor, count: Any) -> torch.Tensor:
        scores = scores.to(torch.promote_types(scores.dtype, torch.float32))
        words = (scores[:, :-1].flatten(0, 1), labels[:, 1:].flatten())
        total = functional.cross_entropy(*words, reduction="mean" if count is None else "sum")
        return total if count is None else torch.div(total, count)


class _Places(nn.Module):
    """Refuses positions other than those in the sequence, by which queries and keys are rotated."""

    def forward(self, ids: torch.Tensor, position_ids: torch.Tensor) -> torch.Tensor:
        expected = torch.arange(position_ids.shape[-1], device=position_ids.device)
        if not torch.equal(position_ids, expected.expand_as(position_ids)):
            raise SMPUnsupportedError(
                "position_ids: smp.nn rotates queries and keys by their places in the sequence, 0 to its length; leave "
                "it out and pad on the right"
            )
        return ids


class _Added(nn.Module):
    """A mask of transformers' as what is added to the scores: finite, also where a causal mask is added to it."""

    def forward(self, mask: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
        if mask.dim() == 2:
            mask = mask[:, None, None, :] != 0
        if mask.dtype is not torch.bool:
            return mask.clamp(min=torch.finfo(mask.dtype).min / 2)
        lowest = torch.finfo(like.dtype).min / 2
        return torch.zeros(mask.shape, dtype=like.dtype, device=mask.device).masked_fill(~mask, lowest)
