"""Ranks that share tensors call the same modules with tensors of the same shapes: an error in the first steps if not.

Where each has its own batch, and data decide which module a row goes to, one rank's rows would be computed with
those of another module, without a word, or collectives of two sizes would meet.
"""

from __future__ import annotations

import hashlib
from typing import Any, Sequence

import torch
import torch.distributed as dist
from torch import nn
from torch.utils import _pytree

from .errors import SMPStepError
from .state import state


def check(module: nn.Module | None, arguments: Any) -> None:
    """A module whose tensors are shared is called on this rank; None: the model's forward pass is over."""
    group = state.group("tp")
    own = shapes(arguments)
    told = [digest(_name(module)), digest(own)]
    said = told_by_all(told, group.ranks, group.process_group)
    others = [rank for rank, each in said.items() if each != told]
    if others:
        what = f"module {_name(module)} is called with {', '.join(own) or 'no tensors'}"
        raise SMPStepError(
            f"{what if module else 'the forward pass is over'} on rank {state.world.rank}, and ranks {others}, which "
            "share its tensors, call another one or with other shapes, as where data decide. Leave it out of tensor "
            "parallelism (smp.set_tensor_parallelism(module, False)), or set prescaled_batch to True and give all of "
            "them the same batch"
        )


def _name(module: nn.Module | None) -> str:
    """In the model; empty for None."""
    if module is None:
        return ""
    return next((name for name, each in state.model.module.named_modules() if each is module), type(module).__name__)


def told_by_all(own: list[int], ranks: Sequence[int], group: Any) -> dict[int, list[int]]:
    """What each of ``ranks``, those of the process group, tells: as many numbers as ``own``. All of them must ask."""
    told = torch.tensor(own)
    said = [torch.empty_like(told) for _ in ranks]
    dist.all_gather(said, told, group=group)
    return {rank: each.tolist() for rank, each in zip(ranks, said)}


def shapes(arguments: Any) -> list[str]:
    """Shapes and types of the tensors in there."""
    return [
        f"{tuple(leaf.shape)} {str(leaf.dtype).removeprefix('torch.')}"
        for leaf in _pytree.tree_leaves(arguments)
        if isinstance(leaf, torch.Tensor) and not isinstance(leaf, nn.Parameter)
    ]


def digest(value: Any) -> int:
    """Of what it looks like; the same on every rank."""
    return int.from_bytes(hashlib.blake2b(repr(value).encode(), digest_size=8).digest(), "little") >> 1
