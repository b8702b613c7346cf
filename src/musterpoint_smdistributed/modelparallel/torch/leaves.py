"""What a wrapped optimizer steps over where that isn't the model's parameters themselves.

With sharded state it is the parameters of this replica's share, or pieces of them: views of the same memory. With a
model in half precision it is copies in float32. So any optimizer of torch's works as it is.
"""

from __future__ import annotations

import contextlib
import itertools
from typing import Any, Callable, Collection, Iterable, Iterator, Mapping, NamedTuple, Sequence

import torch
import torch.distributed as dist
from torch import nn

from ..backend.exceptions import SMPError
from .optimizer_trial import is_elementwise
from .state import Group

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
    ``stands``: for each place its leaf, or the index of a parameter that is there itself."""
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
    """What a piece needs, of shards that may be cut elsewhere; empty where none has anything of the parameter."""
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
            joint = torch.cat([part for part in parts if part is not None])
            joined[name] = joint.view(shape) if is_whole else joint
    return joined


def _cut(shard: Shard, value: Any, start: int, stop: int) -> torch.Tensor | None:
    """Elements of a shard's value; None where it isn't one for each element."""
    if not isinstance(value, torch.Tensor) or not value.dim() or value.numel() != shard.stop - shard.start:
        return None
    return value.reshape(-1)[start:stop]


ALIGNED = 64
"""Pieces begin at multiples of so many elements: vector instructions then compute a piece as they compute the whole."""


class Piece(NamedTuple):
    """Elements ``start`` to ``stop`` of the parameter with this number; all of them where it isn't cut."""

    number: int
    start: int
    stop: int


def divide(
    sizes: Sequence[int], owners: int, whole: Collection[int] = (), loads: Sequence[int] | None = None
) -> list[list[Piece]]:
    """The pieces of each owner, of about the same number of elements.

    Args:
        sizes: the parameters' numbers of elements.
        whole: places in ``sizes`` of those that must not be cut: each goes to whoever has least then, the largest
            first. The others are cut where an owner has its share.
        loads: what the owners have already.
    """
    held = list(loads or [0] * owners)
    share = -(-(sum(held) + sum(sizes)) // owners)
    found: list[list[Piece]] = [[] for _ in range(owners)]
    for place in sorted(whole, key=lambda place: -sizes[place]):
        owner = held.index(min(held))
        held[owner] += sizes[place]
        found[owner].append(Piece(place, 0, sizes[place]))
    owner = 0
    for place, size in enumerate(sizes):
        start = 0
        while start < size and place not in whole:
            room = size - start if owner == owners - 1 else share - held[owner]
            stop = size if room >= size - start else start + max(room, 0) // ALIGNED * ALIGNED
            if stop == start:
                owner += 1
                continue
            held[owner] += stop - start
            found[owner].append(Piece(place, start, stop))
            start = stop
    return [sorted(pieces) for pieces in found]


BUCKET_BYTES = 25 << 20
"""How much of the parameters a rank gets at once from the others, on GPUs."""
CPU_BUCKET_BYTES = 2 << 20
"""The same on CPUs, where large buffers leave holes in the memory that the system doesn't get back."""

_all_gather: Any = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor  # torch 2.13 renamed it


class Leaf(NamedTuple):
    """One tensor that the optimizer steps over.

    tensor: the parameter itself, a view of a piece of it, or a copy in float32.
    """

    piece: Piece
    parameter: nn.Parameter
    tensor: nn.Parameter

    @property
    def is_copy(self) -> bool:
        return self.tensor.dtype != self.parameter.dtype

    def values(self) -> torch.Tensor:
        """The elements in the model."""
        return _elements(self.parameter.data, self.piece)


class Leaves:
    """The leaves of one optimizer on this rank.

    ``replicas``: those that share out the state, or None where each keeps all of it. ``copies``: whether the optimizer
    gets float32 copies of parameters in half precision.
    """

    def __init__(self, optimizer: torch.optim.Optimizer, replicas: Group | None, copies: bool) -> None:
        self._optimizer, self.copies = optimizer, copies
        self._group = replicas
        self._owners, self._rank = (replicas.size, replicas.rank) if replicas is not None else (1, 0)
        self._by_owner: list[list[Piece]] = [[] for _ in range(self._owners)]
        self._parameters: dict[int, nn.Parameter] = {}
        self._mine: dict[int, list[Leaf]] = {}

    @property
    def sharded(self) -> bool:
        return self._group is not None

    def __iter__(self) -> Iterator[Leaf]:
        return itertools.chain.from_iterable(self._mine.values())

    def whole(self) -> dict[int, nn.Parameter]:
        """The parameters that have leaves on any replica, by their index among the optimizer's."""
        return self._parameters

    def extend(self, local: Iterable[nn.Parameter]) -> bool:
        """Gives leaves to the optimizer's parameters of this rank that are trained; whether any are new."""
        own = {id(parameter) for parameter in local if parameter.requires_grad}
        listed = enumerate(each for group in self._optimizer.param_groups for each in group["params"])
        new = {index: each for index, each in listed if index not in self._parameters and id(each) in own}
        if not new:
            return False
        cuts = is_elementwise(self._optimizer) and self._owners > 1
        indices = list(new)
        whole = {place for place, index in enumerate(indices) if not (cuts and new[index].is_contiguous())}
        loads = [sum(piece.stop - piece.start for piece in pieces) for pieces in self._by_owner]
        sizes = [new[index].numel() for index in indices]
        self._parameters.update(new)
        for owner, pieces in enumerate(divide(sizes, self._owners, whole, loads)):
            named = [piece._replace(number=indices[piece.number]) for piece in pieces]
            self._by_owner[owner] += named
            if owner == self._rank:
                for piece in named:
                    self._mine.setdefault(piece.number, []).append(self._leaf(piece, new[piece.number]))
        return True

    def _leaf(self, piece: Piece, parameter: nn.Parameter) -> Leaf:
        values = _elements(parameter.data, piece)
        if self.copies and parameter.dtype in (torch.float16, torch.bfloat16):
            values = values.float()
        elif values.shape == parameter.shape:
            return Leaf(piece, parameter, parameter)
        return Leaf(piece, parameter, nn.Parameter(values))

    @contextlib.contextmanager
    def in_place_of_parameters(self) -> Iterator[list[Leaf | int]]:
        """The optimizer's groups list leaves. Gives the leaf, or the index of the parameter itself, for each."""
        whole = [group["params"] for group in self._optimizer.param_groups]
        index = itertools.count()
        stands: list[Leaf | int] = []
        for group, parameters in zip(self._optimizer.param_groups, whole):
            group["params"] = []
            for parameter in parameters:
                place = next(index)
                leaves = self._mine.get(place, []) if place in self._parameters else None
                group["params"] += [parameter] if leaves is None else [leaf.tensor for leaf in leaves]
                stands += [place] if leaves is None else leaves
        try:
            yield stands
        finally:
            for group, parameters in zip(self._optimizer.param_groups, whole):
                group["params"] = parameters

    # ---- a step

    def call(self, method: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Calls a method of the optimizer that may change weights (``eval()`` of schedule-free ones)."""
        self.take_values()
        with self.in_place_of_parameters():
            result = method(*args, **kwargs)
        self.give_values()
        return result

    def take_gradients(self, factor: float = 1.0) -> None:
        """Gives the leaves their parts of the model's gradients; copies get them times ``factor``."""
        for leaf in self:
            if leaf.tensor is leaf.parameter:
                continue
            if not leaf.is_copy:
                leaf.tensor.data = leaf.values()  # the model may have been moved
            gradient = leaf.parameter.grad
            if gradient is not None:
                gradient = _elements(gradient, leaf.piece)
                if leaf.is_copy:
                    gradient = gradient.to(leaf.tensor.dtype, copy=True).mul_(factor)
            leaf.tensor.grad = gradient

    def drop_gradients(self) -> None:
        for leaf in self:
            if leaf.tensor is not leaf.parameter:
                leaf.tensor.grad = None

    @torch.no_grad()
    def give_values(self) -> None:
        """The model gets what the optimizer made of the copies, and what other replicas made of their leaves."""
        for leaf in self:
            if leaf.is_copy:
                leaf.values().copy_(leaf.tensor)
        if self._group is not None:
            self._share(self._group)

    @torch.no_grad()
    def take_values(self) -> None:
        """The model has other values: copies take those over, and keep their precision where they are the same."""
        for leaf in self:
            if leaf.is_copy:
                values = leaf.values()
                other = leaf.tensor.to(values.dtype) != values
                leaf.tensor.data = torch.where(other, values.to(leaf.tensor.dtype), leaf.tensor)

    def _share(self, group: Group) -> None:
        """Each replica sends its share to the others."""
        kinds: dict[tuple[torch.dtype, torch.device], list[list[torch.Tensor]]] = {}
        for owner, pieces in enumerate(self._by_owner):
            for piece in pieces:
                parameter = self._parameters[piece.number]
                values = _elements(parameter.data, piece)
                if values.is_contiguous():
                    kind = kinds.setdefault((values.dtype, values.device), [[] for _ in range(self._owners)])
                    kind[owner].append(values.view(-1))
                else:
                    sent = values.contiguous()
                    dist.broadcast(sent, group.ranks[owner], group=group.process_group)
                    values.copy_(sent)
        for (dtype, device), by_owner in kinds.items():
            most = BUCKET_BYTES if device.type == "cuda" else CPU_BUCKET_BYTES
            room = max(most // (self._owners * dtype.itemsize), 1)
            length = min(room, max(sum(each.numel() for each in tensors) for tensors in by_owner))
            for parts in itertools.zip_longest(*(_parts(tensors, length) for tensors in by_owner), fillvalue=()):
                own = torch.zeros(length, dtype=dtype, device=device)
                _copy(parts[self._rank], own, out=True)
                gathered = torch.empty(self._owners * length, dtype=dtype, device=device)
                # as bytes: gloo doesn't know every type
                _all_gather(gathered.view(torch.uint8), own.view(torch.uint8), group=group.process_group)
                for owner, part in enumerate(parts):
                    if owner != self._rank:
                        _copy(part, gathered[owner * length : (owner + 1) * length], out=False)


def _elements(tensor: torch.Tensor, piece: Piece) -> torch.Tensor:
    """The piece's elements: in the tensor's own shape where that is all of them."""
    if piece.stop - piece.start == tensor.numel():
        return tensor
    return tensor.reshape(-1)[piece.start : piece.stop]


def _parts(tensors: Iterable[torch.Tensor], length: int) -> Iterator[list[torch.Tensor]]:
    """Views of the tensors in order, in lists of ``length`` elements together; the last has what is left."""
    part: list[torch.Tensor] = []
    room = length
    for tensor in tensors:
        while tensor.numel():
            part.append(tensor[:room])
            tensor = tensor[room:]
            room -= part[-1].numel()
            if not room:
                yield part
                part, room = [], length
    if part:
        yield part


def _copy(part: Sequence[torch.Tensor], buffer: torch.Tensor, out: bool) -> None:
    """Between views and the buffer where they stand one after the other."""
    start = 0
    for view in part:
        place: Any = buffer[start : start + view.numel()]
        place.copy_(view) if out else view.copy_(place)
        start += view.numel()
