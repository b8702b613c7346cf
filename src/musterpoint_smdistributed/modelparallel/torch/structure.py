"""The modules and parameters of a model that is divided: whether they are those of the last look.

Scripts replace heads, register parameters and drop layers whenever they like. Identities are compared at each step's
begin, which takes some microseconds a module.
"""

from __future__ import annotations

import itertools
import operator
from typing import Any, Callable, Mapping, NoReturn, Sequence

import torch
import torch.distributed as dist
from torch import nn

from . import agreement, log
from .effects import vars_of
from .errors import SMPStepError
from .state import Group


class Structure:
    """A model's modules and parameters, by all of their names.

    modules, parameters: by their qualified names.
    own: the parameters that this rank has, each by one name.
    elsewhere: the ids of those of other ranks.

    ``is_own``: whether this rank has a parameter of that name.
    """

    def __init__(self, model: nn.Module, is_own: Callable[[str], bool]) -> None:
        self.modules: Mapping[str, nn.Module] = dict(model.named_modules(remove_duplicate=False))
        self.parameters: Mapping[str, nn.Parameter] = dict(model.named_parameters(remove_duplicate=False))
        self.own = {name: each for name, each in model.named_parameters() if is_own(name)}
        own = {id(each) for each in self.own.values()}
        self.elsewhere = {id(each) for each in self.parameters.values()} - own
        self._buffers = list(model.buffers())
        self._held = [(each, *_held(each)) for each in {id(each): each for each in self.modules.values()}.values()]

    def changes(self, model: nn.Module) -> list[str]:
        """Names the modules and parameters that are new, gone or other ones since."""
        if all(
            _same(before, now) for module, *held in self._held for before, now in zip(held, _held(module), strict=True)
        ):
            return []
        now = Structure(model, lambda name: False)
        kinds = (("module", self.modules, now.modules), ("parameter", self.parameters, now.parameters))
        found = [
            f"{kind} {name}"
            for kind, before, after in kinds
            for name in {**before, **after}
            if before.get(name) is not after.get(name)
        ]
        return found or ["the order of modules"]

    def added(self, model: nn.Module) -> dict[str, torch.Tensor]:
        """The parameters and buffers that are new."""
        known = {id(each) for each in (*self.parameters.values(), *self._buffers)}
        now = (*model.named_parameters(), *model.named_buffers())
        return {name: each for name, each in now if id(each) not in known}


def refuse(change: str) -> NoReturn:
    """Raises the error for a change of a model in parts."""
    raise SMPStepError(
        f"{change} was added, replaced or taken away behind the division of the model over the ranks of the pipeline, "
        "each of which has a part. Do it before the first step; behind it save the model by "
        "smp.save_checkpoint(partial=False), and begin again with the other one"
    )


def agree(changes: Sequence[str], parameters: Mapping[str, nn.Parameter], group: Group) -> None:
    """Compares changes and the parameters that want gradients over the group.
    Raises SMPStepError: ranks differ."""
    own = [*changes, *(f"requires_grad of parameter {name}" for name, each in parameters.items() if each.requires_grad)]
    told = [agreement.digest(own)]
    with log.waiting("a step's begin, where ranks compare what the script has made of the model"):
        said = agreement.told_by_all(told, group.ranks, group.process_group)
        if all(each == told for each in said.values()):
            return
        found: list[Any] = [None] * group.size
        dist.all_gather_object(found, own, group=group.process_group)
    differs = next(each for each in itertools.chain(*found) if not all(each in other for other in found))
    ranks = [rank for rank, other in zip(group.ranks, found) if differs in other]
    raise SMPStepError(
        f"{differs} was set or changed on ranks {ranks} of {list(group.ranks)} only, whose gradients are averaged: "
        "change the model on all ranks alike"
    )


def _held(module: nn.Module) -> tuple[list[Any], list[Any]]:
    held = vars_of(module)
    return list(held["_modules"].values()), list(held["_parameters"].values())


def _same(before: list[Any], now: list[Any]) -> bool:
    return len(before) == len(now) and all(map(operator.is_, before, now))


def wanting(parameters: Mapping[str, nn.Parameter]) -> bytes:
    """A byte for each parameter: whether it wants a gradient, as this rank has been told."""
    with torch._C.DisableTorchFunctionSubclass():
        return bytes(each.requires_grad for each in parameters.values())


def compare(parameters: Mapping[str, nn.Parameter], there: bytes, own_rank: int, leader: int) -> None:
    """Compares them with those of the rank that runs the step function.
    Raises SMPStepError: its script has switched one that this rank's hasn't."""
    for name, own, other in zip(parameters, wanting(parameters), there, strict=True):
        if own != other:
            raise SMPStepError(
                f"requires_grad of parameter {name} has another value on ranks [{own_rank}] than on rank {leader} of "
                "the pipeline: switch it on all ranks alike, outside of steps"
            )
