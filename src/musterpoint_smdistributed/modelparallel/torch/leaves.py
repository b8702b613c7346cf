"""What a wrapped optimizer steps over where that isn't the model's parameters themselves.

With sharded state it is the parameters of this replica's share, or pieces of them: views of the same memory. With a
model in half precision it is copies in float32. So any optimizer of torch's works as it is.
"""

from __future__ import annotations

import contextlib
import itertools
from typing import Any, Iterable, Iterator, NamedTuple, Sequence

import torch
import torch.distributed as dist
from torch import nn

from .pieces import Piece, divide
from .state import Group

BUCKET_BYTES = 25 << 20
"""How much of the parameters a rank gets at once from the others, on GPUs."""
CPU_BUCKET_BYTES = 2 << 20
"""The same on CPUs, where large buffers leave holes in the memory that the system doesn't get back."""

_all_gather: Any = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor  # torch 2.13 renamed it

_ELEMENTWISE = frozenset(
    getattr(torch.optim, name)
    for name in ("SGD", "Adam", "AdamW", "NAdam", "RAdam", "Adamax", "Adagrad", "Adadelta", "RMSprop", "Rprop", "ASGD")
)
"""Optimizers that compute each element by itself, so that pieces of a parameter give what the whole gives."""


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

    Args:
        optimizer: the wrapped one.
        replicas: those that share out the state, or None where each keeps all of it.
        copies: whether the optimizer gets float32 copies of parameters in half precision.

    Raises:
        TypeError: the state of this kind of optimizer can't be shared out.
    """

    def __init__(self, optimizer: torch.optim.Optimizer, replicas: Group | None, copies: bool) -> None:
        if replicas is not None and isinstance(optimizer, torch.optim.LBFGS):
            raise TypeError(
                "shard_optimizer_state: LBFGS's state is one vector of all parameters, which can't be shared out; "
                "leave the parameter out"
            )
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
        """Gives leaves to those of the optimizer's parameters that are of this rank and trained. Whether any are new.

        Args:
            local: the model's parameters on this rank.
        """
        own = {id(parameter) for parameter in local if parameter.requires_grad}
        listed = enumerate(each for group in self._optimizer.param_groups for each in group["params"])
        new = {index: each for index, each in listed if index not in self._parameters and id(each) in own}
        if not new:
            return False
        cuts = type(self._optimizer) in _ELEMENTWISE and self._owners > 1
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
        half = parameter.dtype in (torch.float16, torch.bfloat16)
        if self.copies and half:
            return Leaf(piece, parameter, nn.Parameter(values.float()))
        if values.shape == parameter.shape:
            return Leaf(piece, parameter, parameter)
        return Leaf(piece, parameter, nn.Parameter(values))

    def at(self, index: int, parameter: nn.Parameter) -> Sequence[nn.Parameter]:
        """What stands for a parameter of the optimizer's; nothing where another replica has it."""
        if index not in self._parameters:
            return (parameter,)
        return [leaf.tensor for leaf in self._mine.get(index, ())]

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
                group["params"] += self.at(place, parameter)
                stands += self._mine.get(place, []) if place in self._parameters else [place]
        try:
            yield stands
        finally:
            for group, parameters in zip(self._optimizer.param_groups, whole):
                group["params"] = parameters

    # ---- a step

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
            longest = max(sum(each.numel() for each in tensors) for tensors in by_owner)
            length = min(room, longest)
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
