"""How each parameter is divided over the ranks of a tensor-parallel group, and how its gradient is averaged.

A divided parameter is an ordinary ``nn.Parameter`` that holds this rank's part. :func:`division` says which part that
is, for whatever saves, loads or adds up: checkpoints, optimizer states, norms.
"""

from __future__ import annotations

import functools
from typing import Any, Callable, Literal, NamedTuple, Sequence

import torch
import torch.distributed as dist
from torch import nn
from torch.utils import _pytree

from . import delayed
from .state import state

_DIVISION = "_smp_division"
_INSIDE = "_smp_inside"
_REPLACED = "_smp_replaced"


class Division(NamedTuple):
    """Which part of a parameter a rank has.

    dim: the axis that is cut, into as many ``parts`` as ``tensor_parallel_degree``, of the same size.
    part: which of them is here; the rank in the tensor-parallel group.
    shape: of the whole parameter.
    """

    dim: int
    parts: int
    part: int
    shape: tuple[int, ...]


class Reduction(NamedTuple):
    """How the gradient of a parameter becomes that of the mean loss of all ranks.

    kind: the group over which it is averaged.
    factor: what it is multiplied by as well.
    """

    kind: Literal["dp", "rdp"]
    factor: float


def divide(parameter: nn.Parameter, dim: int) -> Division:
    """Leaves this rank's part of the whole values in the parameter, which stays the same object."""
    group = state.group("tp")
    shape = tuple(parameter.shape)
    dim %= len(shape)
    if shape[dim] % group.size:
        raise ValueError(
            f"a parameter of shape {shape} can't be divided on axis {dim}: {shape[dim]} isn't a multiple of "
            f"{state.cfg.shown('tensor_parallel_degree')}"
        )
    found = Division(dim, group.size, group.rank, shape)
    if group.size > 1:
        if delayed.is_delayed(parameter):
            delayed.divide(parameter, functools.partial(part_of, division=found))
        else:
            parameter.data = part_of(parameter.data, found)
        parameter.grad = None
    mark(parameter, found)
    return found


def mark(parameter: nn.Parameter, division: Division) -> None:
    """Says that a parameter holds a part; a copy of a parameter has forgotten it."""
    setattr(parameter, _DIVISION, division)


def mark_inside(parameter: nn.Parameter) -> None:
    """Says that a whole parameter is used with activations that the ranks share; see :mod:`.nn.layouts`."""
    setattr(parameter, _INSIDE, True)


def replace(old: nn.Parameter, new: list[nn.Parameter]) -> None:
    """Says that others have the values of a parameter now, for optimizers that have it; they train if it does."""
    for each in new:
        each.requires_grad_(old.requires_grad)
    setattr(old, _REPLACED, new)


def take_replaced(optimizer: torch.optim.Optimizer) -> bool:
    """Puts those parameters in the place of replaced ones into an optimizer that was made before; whether any were."""
    found = False
    for group in optimizer.param_groups:
        if any(hasattr(each, _REPLACED) for each in group["params"]):
            found = True
            if any(each in optimizer.state for each in group["params"]):
                raise ValueError(
                    "the optimizer has stepped over parameters whose place others take under smp.tensor_parallelism: "
                    "wrap the model in smp.DistributedModel before the first step"
                )
            several = [new for each in group["params"] for new in getattr(each, _REPLACED, [each])]
            group["params"] = list({id(each): each for each in several}.values())
    return found


def division(parameter: torch.Tensor) -> Division | None:
    """Which part of it this rank has; None where it has all of it."""
    found: Division | None = getattr(parameter, _DIVISION, None)
    return found if found is not None and found.parts > 1 else None


def part_of(whole: torch.Tensor, division: Division) -> torch.Tensor:
    """This rank's part of a tensor of the whole parameter's shape, in memory of its own."""
    length = division.shape[division.dim] // division.parts
    return whole.narrow(division.dim, division.part * length, length).clone(memory_format=torch.contiguous_format)


def whole_of(part: torch.Tensor, division: Division) -> torch.Tensor:
    """All parts together. Every rank of the tensor-parallel group calls it, with a part of the parameter's shape."""
    return together(part, division.dim)


def together(part: torch.Tensor, dim: int) -> torch.Tensor:
    """What the ranks of the tensor-parallel group have, one after the other. Each of them calls it."""
    group, part = state.group("tp"), part.detach().contiguous()
    parts = [torch.empty_like(part) for _ in range(group.size)]
    dist.all_gather(parts, part, group=group.process_group)
    return torch.cat(parts, dim)


def reduction(parameter: torch.Tensor) -> Reduction:
    """How its gradient is averaged.

    Without ``prescaled_batch`` each tensor-parallel rank has a batch of its own, and a divided parameter gets the sum
    of the gradients of all of them.
    """
    cfg = state.cfg
    degree = cfg.tensor_parallel_degree
    own_batch = 1.0 if cfg.prescaled_batch else 1 / degree
    if division(parameter) is not None:
        return Reduction("rdp", own_batch)
    if degree == 1 or not getattr(parameter, _INSIDE, False):
        return Reduction("dp", 1.0)
    if cfg.optimize == "speed":  # all ranks compute the same
        return Reduction("dp", own_batch)
    return Reduction("dp", float(degree) if cfg.prescaled_batch else 1.0)


def whole_state(values: Any, parameter: torch.Tensor) -> Any:
    """State that belongs to a parameter (an optimizer's moments) with tensors of its shape made whole.

    Every rank of the tensor-parallel group calls it, with the same keys.
    """
    found = division(parameter)
    return values if found is None else _with_each(values, parameter.shape, lambda part: whole_of(part, found))


def part_of_state(values: Any, parameter: torch.Tensor) -> Any:
    """The opposite of :func:`whole_state`; state that is a part already stays."""
    found = division(parameter)
    return values if found is None else _with_each(values, found.shape, lambda whole: part_of(whole, found))


def _with_each(values: Any, shape: Sequence[int], change: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    def changed(value: torch.Tensor) -> torch.Tensor:
        return change(value) if value.dim() > 0 and tuple(value.shape) == tuple(shape) else value

    return _pytree.tree_map_only(torch.Tensor, changed, values)
