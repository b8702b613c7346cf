"""FullyShardedDataParallel where the ranks that share layers are all there are: nothing is left to shard.

Torch's would have flat parameters in the place of DTensors, and lose how they are divided. So it wraps the model
here, leaves its parameters as they are, and optimizer states are put under the parameters' names without it.
"""

from __future__ import annotations

import logging
from typing import Any, Callable

import torch
from torch import nn
from torch.distributed.tensor import DTensor

from . import logger
from .delayed_param import on_meta
from .state import state
from .tensor_parallel import without_wrappers


def leave_out_all(given: dict[str, Any], afterwards: Callable[[nn.Module], Any] | None) -> None:
    """Changes the arguments of FullyShardedDataParallel."""
    module = given["module"]
    if on_meta(module):
        materialize(module, given.pop("param_init_fn", None), afterwards or (lambda _: None))
    if given.get("mixed_precision") is not None:
        logger.say(
            f"{state.cfg.shown('tensor_parallel_degree')}: no ranks are left to shard over, so "
            "FullyShardedDataParallel's mixed_precision has no effect: use torch.autocast, or more ranks",
            logging.WARNING,
        )
    given.pop("ignored_modules", None)
    given["ignored_states"] = set(module.parameters())


def materialize(
    module: nn.Module, initialize: Callable[[nn.Module], Any] | None, afterwards: Callable[[nn.Module], Any]
) -> None:
    """Gives the whole model its memory before it is cut, because weights that modules share are tied again after it."""
    for inner in module.modules():
        if initialize is not None and any(each.is_meta for each in inner.parameters(recurse=False)):
            initialize(inner)
    afterwards(module)


def to_save(model: nn.Module, optimizer: Any) -> dict[str, Any]:
    """The optimizer's state by the parameters' names, as ``FullyShardedDataParallel.optim_state_dict`` gives it."""
    names = _names(model)
    found = optimizer.state_dict()
    order = [each for group in optimizer.param_groups for each in group["params"]]
    numbers = [number for group in found["param_groups"] for number in group["params"]]
    by_number = {number: names[each] for number, each in zip(numbers, order)}
    return {
        "state": {by_number[number]: values for number, values in found["state"].items()},
        "param_groups": [
            {**group, "params": [by_number[number] for number in group["params"]]} for group in found["param_groups"]
        ],
    }


def to_load(model: nn.Module, optimizer: Any, saved: dict[str, Any]) -> dict[str, Any]:
    """The other way, for ``optimizer.load_state_dict``."""
    names, number = _names(model), 0
    states, groups = {}, []
    for group, old in zip(optimizer.param_groups, saved["param_groups"]):
        numbers = []
        for parameter in group["params"]:
            values = saved["state"].get(names[parameter])
            if values is not None:
                states[number] = {key: _like(parameter, value) for key, value in values.items()}
            numbers.append(number)
            number += 1
        groups.append({**old, "params": numbers})
    return {"state": states, "param_groups": groups}


def _names(model: nn.Module) -> dict[Any, str]:
    return {each: without_wrappers(name) for name, each in model.named_parameters()}


def _like(parameter: Any, value: Any) -> Any:
    """A tensor of this rank's part as the parameter is divided."""
    if not isinstance(parameter, DTensor) or not isinstance(value, torch.Tensor) or isinstance(value, DTensor):
        return value
    local = parameter.to_local()
    if value.shape != local.shape:
        return value
    return DTensor.from_local(
        value.to(local.device),
        parameter.device_mesh,
        parameter.placements,
        run_check=False,
        shape=parameter.shape,
        stride=parameter.stride(),
    )
