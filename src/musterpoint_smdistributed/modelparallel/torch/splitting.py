"""Cuts the arguments of a step function into those of its microbatches."""

from __future__ import annotations

import copy
import inspect
from collections.abc import MutableMapping
from typing import Any, Collection, Mapping

import torch
from torch.nn.utils.rnn import PackedSequence


def split_arguments(
    bound: inspect.BoundArguments, count: int, whole: Collection[str], axes: Mapping[str, int]
) -> list[inspect.BoundArguments]:
    """The arguments of each microbatch.

    Args:
        bound: the arguments of the batch.
        count: how many microbatches there are.
        whole: names of arguments that each of them gets as they are.
        axes: by argument, the axis on which its tensors are cut; 0 where it isn't named.

    Raises:
        ValueError: an axis of a tensor isn't there, or its size can't be divided by ``count``.
        TypeError: there is something whose tensors have no such axis.
    """
    parameters = bound.signature.parameters
    result = []
    for index in range(count):
        part = inspect.BoundArguments(bound.signature, type(bound.arguments)())
        for name, value in bound.arguments.items():
            if parameters[name].kind is inspect.Parameter.VAR_KEYWORD:
                part.arguments[name] = {
                    key: each if key in whole else split(each, count, index, axes.get(key, 0), key)
                    for key, each in value.items()
                }
            elif name in whole:
                part.arguments[name] = value
            else:
                part.arguments[name] = split(value, count, index, axes.get(name, 0), name)
        result.append(part)
    return result


def split(value: Any, count: int, index: int, axis: int, name: str) -> Any:
    """The part of microbatch ``index`` of ``count``: tensors are cut, containers stay what they are, objects with
    ``smp_slice(count, index, axis)`` are asked, and anything else is the same for all."""
    if isinstance(value, torch.Tensor):
        return _cut(value, count, index, axis, name)
    if isinstance(value, torch.nn.Module | torch.optim.Optimizer | torch.Size | str | bytes):
        return value
    if hasattr(value, "smp_slice"):
        return value.smp_slice(count, index, axis)
    if isinstance(value, PackedSequence):
        raise TypeError(
            f"argument {name!r} of the step function is a PackedSequence, which can't be cut into microbatches: name "
            "it in non_split_inputs, or pass padded sequences and pack them inside"
        )
    if isinstance(value, (list, tuple, set)):
        parts = [split(part, count, index, axis, name) for part in value]
        return type(value)(*parts) if hasattr(value, "_fields") else type(value)(parts)
    if isinstance(value, MutableMapping):
        mapping = copy.copy(value)
        for key in value:
            mapping[key] = split(value[key], count, index, axis, name)
        return mapping
    return value


def _cut(tensor: torch.Tensor, count: int, index: int, axis: int, name: str) -> torch.Tensor:
    if tensor.dim() == 0:
        return tensor
    if not -tensor.dim() <= axis < tensor.dim():
        raise ValueError(
            f"argument {name!r} of the step function: input_split_axes has axis {axis}, but a tensor of shape "
            f"{tuple(tensor.shape)} has no such axis"
        )
    size = tensor.shape[axis]
    if size % count:
        raise ValueError(
            f"argument {name!r} of the step function: a tensor of shape {tuple(tensor.shape)} can't be cut on axis "
            f"{axis} into microbatches={count} of the same size, since {count} doesn't divide {size}. Drop the last "
            "batch of the loader, or name the argument in non_split_inputs"
        )
    return tensor.narrow(axis, index * (size // count), size // count)
