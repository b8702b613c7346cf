"""Sequences divided over the context-parallel ranks: each has two parts of each sequence, and sees all keys and values.

Of 2n parts rank i has parts i and 2n - 1 - i, as AWS's public recipes give them out (``get_batch_for_cp_rank`` of the
HyperPod training adapter), so that causal attention costs every rank the same. Torch's ring attention has kernels for
GPUs only; here keys and values are gathered by DTensor's redistribution, whose backward pass adds up their gradients,
and attention is torch's own.
"""

from __future__ import annotations

import importlib
import logging
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard
from torch.nn.functional import scaled_dot_product_attention

from . import logger
from .errors import SMPConfigError, SMPUnsupportedError

NAME = "tsm_context_parallel"
KINDS = ("p2p", "all_gather")
TAKEN = frozenset({
    "position_ids", "cache_position", "position_embeddings", "use_cache", "num_items_in_batch", "shift_labels",
    "labels", "output_attentions", "output_hidden_states", "output_router_logits", "return_dict", "logits_to_keep",
    "is_causal",
})  # fmt: skip
"""What transformers hands on to attentions, which have no use for it: positions are in queries and keys already."""
IGNORED = -100
"""The label of what is no part of a loss, in torch and transformers."""


def own_part(whole: torch.Tensor, rank: int, size: int, dim: int = 1) -> torch.Tensor:
    """What ``rank`` of ``size`` gets of sequences.

    Args:
        whole: the same on all ranks.
        dim: the sequence's.

    Raises:
        SMPConfigError: the length isn't divisible into twice as many parts as there are ranks.
    """
    if whole.shape[dim] % (2 * size):
        raise SMPConfigError(
            f"a sequence of length {whole.shape[dim]} can't be divided into {2 * size} equal parts, two for each of "
            f"context_parallel_degree={size} ranks: choose a multiple of {2 * size}"
        )
    parts = whole.chunk(2 * size, dim)
    return torch.cat([parts[rank], parts[-1 - rank]], dim)


def divide(model: nn.Module, group: Any, kind: str = "p2p") -> nn.Module:
    """Has ``model`` take this rank's parts of sequences.

    Its attention sees all of each sequence, its positions are those in the whole, and the loss it computes from
    ``labels`` is that of the whole on every rank.

    Args:
        group: the ranks that share sequences.
        kind: AWS's ``cp_comm_type``; both gather here.

    Raises:
        SMPConfigError: another ``kind``.
        SMPUnsupportedError: the model doesn't take its attention from transformers' table.
    """
    if kind not in KINDS:
        raise SMPConfigError(f"tsm.transform(cp_comm_type={kind!r}): expected one of {', '.join(map(repr, KINDS))}")
    if not getattr(model, "_supports_attention_backend", False):
        raise SMPUnsupportedError(
            f"tsm.transform: context_parallel_degree={dist.get_world_size(group)}, but the attention of "
            f"{type(model).__name__} can't be replaced: models of transformers that take an attention by its name can "
            "be divided so (Llama, GPT-NeoX, Mistral, …); set context_parallel_degree to 1 for others"
        )
    sequences = _Sequences(group)
    importlib.import_module("transformers").AttentionInterface.register(NAME, sequences.attend)
    for module in model.modules():
        config = getattr(module, "config", None)
        if config is not None and hasattr(config, "_attn_implementation"):
            config._attn_implementation = NAME
    model.register_forward_pre_hook(sequences.before, with_kwargs=True)
    model.register_forward_hook(sequences.after)
    return model


class _Sequences:
    """The sequences of one group of ranks."""

    def __init__(self, group: Any) -> None:
        self.group, self.size, self.rank = group, dist.get_world_size(group), dist.get_rank(group)
        kind = "cuda" if torch.cuda.is_available() and torch.version.cuda else "cpu"
        self._mesh = DeviceMesh.from_group(group, kind)
        self._checked = False
        self._packed: torch.Tensor | None = None

    def attend(
        self,
        module: nn.Module,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        attention_mask: Any,
        dropout: float = 0.0,
        scaling: float | None = None,
        sliding_window: int | None = None,
        **more: Any,
    ) -> tuple[torch.Tensor, None]:
        """Causal attention as transformers calls it: ``[batch, heads, length, size]`` of queries, keys and values."""
        unknown = sorted(name for name, value in more.items() if name not in TAKEN and value is not None)
        if unknown or more.get("is_causal") is False:
            raise SMPUnsupportedError(
                f"{type(module).__name__}: its attention is called with {', '.join(unknown) or 'is_causal=False'}, "
                "which context_parallel_degree over 1 can't follow: set it to 1 for this model"
            )
        keys, values = self._whole(torch.stack((key, value)))
        length = query.shape[2] // 2
        found = []
        for queries, part in zip(query.chunk(2, 2), (self.rank, 2 * self.size - 1 - self.rank)):
            seen = (part + 1) * length
            places = torch.arange(seen, device=query.device)
            distance = places[part * length :, None] - places
            mask = distance >= 0
            if sliding_window is not None:
                mask &= distance < sliding_window
            if self._packed is not None:  # words see those of their own sequence only
                own = self._packed[:, part * length : seen]
                mask = (mask & (own.unsqueeze(2) == self._packed[:, None, :seen])).unsqueeze(1)
            given = (queries, keys[:, :, :seen], values[:, :, :seen], mask, dropout)
            found.append(scaled_dot_product_attention(*given, scale=scaling, enable_gqa=query.shape[1] != key.shape[1]))
        return torch.cat(found, 2).transpose(1, 2).contiguous(), None

    def _whole(self, own: torch.Tensor) -> torch.Tensor:
        """All ranks' parts along the length, the last dimension but one, in their order in the sequence."""
        given = DTensor.from_local(own.unsqueeze(0), self._mesh, [Shard(0)], run_check=False)
        everyones = given.redistribute(placements=[Replicate()]).to_local(grad_placements=[Partial()])
        first, second = everyones.chunk(2, -2)
        return torch.cat([*first.unbind(0), *second.flip(0).unbind(0)], -2)

    def _everyones(self, own: torch.Tensor) -> list[torch.Tensor]:
        """What each rank of the group has."""
        own = own.detach().contiguous()
        found = [torch.empty_like(own) for _ in range(self.size)]
        dist.all_gather(found, own, group=self.group)
        return found

    def before(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Gives the model positions in the whole sequence, and labels of the next words."""
        words = kwargs.get("input_ids", kwargs.get("inputs_embeds", args[0] if args else None))
        if not isinstance(words, torch.Tensor):
            return None
        length = words.shape[1]
        if length % 2:
            raise SMPConfigError(
                f"this rank's part of a sequence has length {length}: with context_parallel_degree each rank is given "
                "two equal parts, as torch.sagemaker.context_parallel.own_part cuts them"
            )
        self._check(words)
        mask = kwargs.get("attention_mask", args[1] if len(args) > 1 else None)
        if isinstance(mask, torch.Tensor) and not bool(mask.all()):
            raise SMPUnsupportedError(
                "attention_mask hides words, which context_parallel_degree over 1 doesn't take: pack sequences instead "
                "of padding them, with position_ids that begin at 0 for each, and pass attention_mask=None"
            )
        args, kwargs = args[:1], {**kwargs, "attention_mask": None}
        if kwargs.get("position_ids") is None:
            whole = torch.arange(length * self.size, device=words.device).unsqueeze(0)
            kwargs["position_ids"] = own_part(whole, self.rank, self.size)
            self._packed = None
        else:
            self._packed = self._sequences(kwargs["position_ids"])
        if kwargs.get("labels") is not None:
            self._shift(kwargs)
        return args, {**kwargs, "use_cache": False}

    def _sequences(self, own: torch.Tensor) -> torch.Tensor | None:
        """The number of the packed sequence of each word, as transformers counts them; None where there is one."""
        if own.dim() != 2:
            raise SMPUnsupportedError(
                f"position_ids of shape {tuple(own.shape)}: context_parallel_degree over 1 takes one position for each "
                "word, [batch, length]"
            )
        halves = [each.chunk(2, 1) for each in self._everyones(own)]
        whole = torch.cat([*(first for first, _ in halves), *(second for _, second in reversed(halves))], 1)
        begins = torch.zeros_like(whole)
        begins[:, 1:] = whole.diff(dim=1) != 1
        return begins.cumsum(1) if bool(begins.any()) else None

    def _shift(self, kwargs: dict[str, Any]) -> None:
        """Labels one to the left, over the borders of parts, and this rank's share of the mean."""
        labels = kwargs["labels"]
        if kwargs.get("shift_labels") is None:
            first, second = labels.chunk(2, 1)
            everyones = self._everyones(torch.stack((first[:, 0], second[:, 0])))
            following = [*(each[0] for each in everyones), *(each[1] for each in reversed(everyones))]
            following.append(torch.full_like(following[0], IGNORED))
            ends = [following[part + 1].unsqueeze(1) for part in (self.rank, 2 * self.size - 1 - self.rank)]
            kwargs["shift_labels"] = torch.cat([first[:, 1:], ends[0], second[:, 1:], ends[1]], 1)
        count = kwargs.get("num_items_in_batch")
        if count is None:
            count = (kwargs["shift_labels"] != IGNORED).sum()
            dist.all_reduce(count, group=self.group)
        kwargs["num_items_in_batch"] = count / self.size

    def after(self, module: nn.Module, args: Any, output: Any) -> Any:
        """The loss of the whole, with the gradient of this rank's share, which FSDP averages over the ranks."""
        loss = getattr(output, "loss", None)
        if isinstance(loss, torch.Tensor):
            mean = loss.detach().clone()
            dist.all_reduce(mean, group=self.group)
            output["loss"] = loss + (mean / self.size - loss.detach())
        return output

    def _check(self, words: torch.Tensor) -> None:
        """Warns once where all ranks have the same words, which aren't parts of a sequence then."""
        if self._checked:
            return
        self._checked = True
        if all(torch.equal(each, words) for each in self._everyones(words)):
            logger.say(
                "all ranks that share sequences (context_parallel_degree) were given the same words: give each its "
                "part, as torch.sagemaker.context_parallel.own_part cuts them",
                logging.WARNING,
            )
