"""Optimizer state by the model's parameters: as one process has it, and as the shares of several replicas.

A share lists what it has as ``(index of the parameter, first element, end, values)``. Values of the piece's own shape
are pieces of the whole's; others, such as the number of steps, belong to every piece.
"""

from __future__ import annotations

from typing import Any, Iterable, Mapping, NamedTuple, Sequence

import torch

from ..backend.exceptions import SMPError
from .leaves import Leaf
from .pieces import Piece

SHARDS = "_smp_shards"
"""The key of a share's list. Such a state has parts of parameters' states, and no whole ones."""
HALF = "_smp_fp16_states"
"""The key of what training in half precision has besides: the copies in float32, and the loss scale."""
COPY = "float32"
"""The name of the copy among a piece's values there."""

Values = Mapping[str, Any]


class Shard(NamedTuple):
    """What a replica has of one parameter's state. Saved as a plain tuple, which ``weights_only=True`` loads."""

    number: int
    start: int
    stop: int
    values: Values


class SMPOptimizerStateError(SMPError, ValueError):
    """A saved state doesn't have what this rank needs."""


def taken(state: Mapping[int, Values], stands: Sequence[Leaf | int]) -> tuple[list[Shard], dict[Any, Any]]:
    """The wrapped optimizer's state, by place among what it steps over: shards, and the rest by parameter.

    Args:
        stands: for each place its leaf, or the index of a parameter that is there itself.
    """
    shards: list[Shard] = []
    others: dict[Any, Any] = {}
    for place, values in state.items():
        stood = stands[place] if isinstance(place, int) else place
        if isinstance(stood, Leaf):
            shards.append(Shard(*stood.piece, values))
        else:
            others[stood] = values
    return shards, others


def merged(shards: Iterable[Shard], parameters: Mapping[int, torch.Tensor]) -> dict[int, dict[str, Any]]:
    """The state of whole parameters, of shards that together have all of each."""
    by_index: dict[int, list[Shard]] = {}
    for shard in shards:
        by_index.setdefault(shard.number, []).append(shard)
    return {
        index: dict(_joined(by_index[index], Piece(index, 0, parameters[index].numel()), parameters[index].shape))
        for index in sorted(by_index)
    }


def of_piece(shards: Sequence[Shard], piece: Piece, shape: torch.Size) -> Values:
    """What a piece needs, of shards that may be cut elsewhere; empty where none has anything of the parameter.

    Raises:
        SMPOptimizerStateError: some of its elements are in no shard.
    """
    found = [shard for shard in shards if shard.number == piece.number]
    return _joined(found, piece, shape) if found else {}


def whole_as_shards(state: Mapping[Any, Values], parameters: Mapping[int, torch.Tensor]) -> list[Shard]:
    """State of whole parameters as shards that have all of them."""
    return [
        Shard(index, 0, parameters[index].numel(), values) for index, values in state.items() if index in parameters
    ]


def _joined(shards: Sequence[Shard], piece: Piece, shape: torch.Size) -> Values:
    """The values of a piece, put together of shards; ``shape``: the whole parameter's."""
    size = shape.numel()
    is_whole = piece.stop - piece.start == size
    shards = sorted(shards, key=lambda shard: shard.start)
    if len(shards) == 1 and shards[0][:3] == piece:
        return shards[0].values
    reached, used = piece.start, []
    for shard in shards:
        if shard.start <= reached < shard.stop:
            used.append((shard, reached - shard.start, min(shard.stop, piece.stop) - shard.start))
            reached = min(shard.stop, piece.stop)
    if reached < piece.stop:
        raise SMPOptimizerStateError(
            f"the optimizer's state of parameter {piece.number} (of shape {tuple(shape)}) is saved up to element "
            f"{reached}, and this rank needs {piece.start} to {piece.stop}: other replicas' parts are missing; load "
            "all of them, or a state that was gathered"
        )
    joined: dict[str, Any] = {}
    for name, value in used[0][0].values.items():
        parts = [_cut(shard, shard.values[name], start, stop) for shard, start, stop in used]
        if any(part is None for part in parts):
            joined[name] = value.clone() if isinstance(value, torch.Tensor) else value
        else:
            tensors = [part for part in parts if part is not None]
            joint = tensors[0].clone() if len(tensors) == 1 else torch.cat(tensors)
            joined[name] = joint.view(shape) if is_whole else joint
    return joined


def _cut(shard: Shard, value: Any, start: int, stop: int) -> torch.Tensor | None:
    """Elements of a shard's value; None where it isn't one for each element."""
    if not isinstance(value, torch.Tensor) or not value.dim() or value.numel() != shard.stop - shard.start:
        return None
    return value.reshape(-1)[start:stop]
