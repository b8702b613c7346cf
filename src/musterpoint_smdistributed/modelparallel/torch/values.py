"""The values that all ranks begin with: those of rank 0, and of each parameter only where it is kept."""

from __future__ import annotations

from typing import Callable, Iterable

import torch
import torch.distributed as dist
from torch import nn

from . import communication, delayed
from .distributed_parameters import division
from .state import Group, state

Keeps = Callable[[str], bool]


def share(named: Iterable[tuple[str, torch.Tensor]], keeps: Keeps, device: torch.device | None = None) -> None:
    """Every rank begins with the values of rank 0; with the parts of its replica that belong to this rank.

    Delayed parameters get their memory one after the other, and only on ranks that keep them, on ``device``. Every rank
    calls it with the same tensors.
    """
    with torch.no_grad():
        for name, tensor in named:
            if isinstance(tensor, nn.Parameter) and delayed.is_delayed(tensor):
                _settle(tensor, keeps(name), device)
            else:
                _broadcast(tensor.detach(), _groups(tensor))


def agree(module: nn.Module) -> None:
    """What any rank has used the values of already isn't delayed on the others either."""
    if not delayed.used:
        return
    named = delayed.named(module)
    everywhere = set.intersection(*communication.allgather({name for name, _ in named}, communication.WORLD))
    for name, each in named:
        if name not in everywhere:
            delayed.materialize(each)


def everything(name: str) -> bool:
    return True


def _settle(parameter: nn.Parameter, keeps: bool, device: torch.device | None) -> None:
    how = delayed.how(parameter)
    groups = [state.group("world")] if how.cut is not None else _groups(parameter)
    if all(group.rank == 0 for group in groups):
        values = how.whole()
    else:
        values = torch.empty_strided(how.view.size, how.view.stride, dtype=how.dtype)
    _broadcast(values, groups)
    if keeps:
        part = how.part_of(values)
        delayed.give(parameter, part if device is None else part.to(device))
    else:
        delayed.release(parameter)


def _groups(tensor: torch.Tensor) -> list[Group]:
    """The groups over which the first rank's values go, one after the other."""
    return [state.group("world")] if division(tensor) is None else [state.group("rdp"), state.group("pp")]


def _broadcast(tensor: torch.Tensor, groups: Iterable[Group]) -> None:
    for group in groups:
        if group.size > 1:
            dist.broadcast(tensor, group.ranks[0], group=group.process_group)
