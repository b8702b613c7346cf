"""The modules and parameters of a model that is divided: whether they are those of the last look.

Scripts replace heads, register parameters and drop layers whenever they like. Identities are compared at each step's
begin, which takes some microseconds a module.
"""

from __future__ import annotations

import functools
import itertools
from typing import Any, Callable, Mapping, NoReturn, Sequence

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parameter import is_lazy

from . import agreement, log
from .effects import alike, vars_of
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
        if all(all(map(alike, held, _held(module))) for module, *held in self._held):
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


def check(model: nn.Module, divides: bool) -> None:
    """Raises SMPStepError for scripts, which can't be divided, and lazy modules.

    divides: ranks get parts of the model.
    """
    for name, each in model.named_modules():
        if divides and isinstance(each, torch.jit.ScriptModule):
            raise SMPStepError(
                f"{_said(name)} is scripted or traced (torch.jit), so that nobody hears of its "
                "calls, and ranks can't have parts of it: wrap the module that it was made of, or set partitions and "
                "sharded_data_parallel_degree to 1"
            )
        tensors = (each.named_parameters(recurse=False), each.named_buffers(recurse=False))
        lazy = next((key for key, tensor in itertools.chain(*tensors) if is_lazy(tensor)), None)
        if lazy is not None:
            raise SMPStepError(
                f"{lazy} of {_said(name)} ({type(each).__name__}) has no shape yet: call the "
                "model with a batch on all ranks before smp.DistributedModel, and make the optimizer behind that, as "
                "in plain torch"
            )


_COPYING = ("__deepcopy__", "__reduce_ex__", "__prepare_scriptable__")
"""Methods by which copy.deepcopy, pickle and torch.jit.script take a module."""


def keep(model: nn.Module, why: Callable[[str, torch.Tensor], str]) -> None:
    """Refuses copies, files and scripts of modules that aren't whole here.

    why: says so of one, by its name; empty: it is whole.
    """
    for name, each in model.named_modules():
        tensors = (each.named_parameters(name), each.named_buffers(name))
        reason = next(filter(None, (why(*found) for found in itertools.chain(*tensors))), "")
        if reason:
            vars_of(each).update(dict.fromkeys(_COPYING, functools.partial(no_copy, name, reason)))


def no_copy(name: str, reason: str, *_: Any) -> NoReturn:
    """Raises the error for a copy of what is in parts."""
    raise SMPStepError(
        f"{_said(name)} can't be copied (copy), saved (torch.save, pickle) or scripted (torch.jit) as it is: {reason}. "
        "Use model.state_dict(), or do it before smp.DistributedModel"
    )


def _said(name: str) -> str:
    return f"module {name}" if name else "the model"


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
    held = vars_of(held.get("_actual_script_module", module))  # of a traced one
    return list(held["_modules"].values()), list(held["_parameters"].values())


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
