"""``smp.step``: a function of the script that runs once per microbatch, over all ranks of a pipeline."""

from __future__ import annotations

import copy
import dataclasses
import functools
import inspect
from collections.abc import MutableMapping
from typing import Any, Callable, Collection, Mapping, Sequence

import torch
from torch.nn.utils.rnn import PackedSequence

from .errors import SMPStepError
from .state import state


class StepOutput:
    """One tensor per microbatch, in their order; ``outputs`` has them."""

    def __init__(self, outputs: Sequence[torch.Tensor]) -> None:
        self.outputs = list(outputs)

    def reduce_mean(self) -> torch.Tensor:
        """The mean over the microbatches, element by element; of integers as floating point."""
        stacked = self.stack()
        return (stacked if stacked.is_floating_point() or stacked.is_complex() else stacked.float()).mean(0)

    def reduce_sum(self) -> torch.Tensor:
        """The sum over the microbatches, element by element."""
        return self.stack().sum(0)

    def concat(self) -> torch.Tensor:
        """The microbatches one after the other on axis 0: the batch again. Scalars become one axis."""
        return torch.cat([output if output.dim() else output[None] for output in self.outputs])

    def stack(self) -> torch.Tensor:
        """The microbatches on a new axis 0."""
        return torch.stack(self.outputs)

    def __getattr__(self, name: str) -> Any:
        """An attribute or a method of the tensors: of each one, so that ``output.detach()`` is a StepOutput again.

        transformers' Trainer does this.
        """
        if name.startswith("__") or name == "outputs":
            raise AttributeError(name)
        values = [getattr(output, name) for output in self.outputs]
        if values and callable(values[0]):
            return lambda *args, **kwargs: merge([value(*args, **kwargs) for value in values])
        return merge(values)

    def __len__(self) -> int:
        return len(self.outputs)

    def __getitem__(self, microbatch: int) -> torch.Tensor:
        return self.outputs[microbatch]

    def __repr__(self) -> str:
        return f"StepOutput({self.outputs!r})"


def merge(values: Sequence[Any]) -> Any:
    """One structure out of those of all microbatches: tensors become a StepOutput, containers stay what they are,
    anything else becomes a list with a value per microbatch, and None stays None."""
    first = values[0]
    if all(value is None for value in values):
        return None
    if isinstance(first, torch.Size) or any(type(value) is not type(first) for value in values):
        return list(values)
    if isinstance(first, torch.Tensor):
        return StepOutput(values)
    found = _together(values, lambda *parts: merge(parts))
    return list(values) if found is None else found


def detached(value: Any) -> Any:
    """The same structure, its tensors without their graphs."""
    if isinstance(value, torch.Tensor):
        return value.detach()
    found = _together([value], detached)
    return value if found is None else found


def _together(values: Sequence[Any], part: Callable[..., Any]) -> Any:
    """One structure like all of ``values``, each ``part`` made of theirs; None: they are no containers of one shape."""
    first = values[0]
    if isinstance(first, (list, tuple)) and all(len(value) == len(first) for value in values):
        parts = [part(*each) for each in zip(*values)]
        return type(first)(*parts) if hasattr(first, "_fields") else type(first)(parts)
    if isinstance(first, MutableMapping) and all(value.keys() == first.keys() for value in values):
        mapping = copy.copy(first)
        for key in first:
            mapping[key] = part(*(value[key] for value in values))
        return mapping
    if dataclasses.is_dataclass(first) and not isinstance(first, type):
        record = copy.copy(first)
        for field in dataclasses.fields(first):
            object.__setattr__(record, field.name, part(*(getattr(value, field.name) for value in values)))
        return record
    return None


def split_arguments(
    bound: inspect.BoundArguments, count: int, whole: Collection[str], axes: Mapping[str, int]
) -> list[inspect.BoundArguments]:
    """The arguments of each microbatch.

    ``whole``: names of arguments that each of them gets as they are. ``axes``: by argument, the axis on which its
    tensors are cut; 0 where it isn't named.
    """

    def part_of(name: str, value: Any, index: int) -> Any:
        return value if name in whole else split(value, count, index, axes.get(name, 0), name)

    result = []
    for index in range(count):
        part = inspect.BoundArguments(bound.signature, type(bound.arguments)())
        for name, value in bound.arguments.items():
            if bound.signature.parameters[name].kind is inspect.Parameter.VAR_KEYWORD:
                part.arguments[name] = {key: part_of(key, each, index) for key, each in value.items()}
            else:
                part.arguments[name] = part_of(name, value, index)
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
    if isinstance(value, set):
        return type(value)(split(part, count, index, axis, name) for part in value)
    if isinstance(value, (list, tuple, MutableMapping)):
        return _together([value], lambda part: split(part, count, index, axis, name))
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


Function = Callable[..., Any]


def step(
    function: Function | None = None,
    non_split_inputs: Sequence[str] | None = None,
    input_split_axes: Mapping[str, int] | None = None,
    detach_outputs: bool = True,
) -> Any:
    """Decorates a step function: ``@smp.step``, or ``@smp.step(…)`` with options.

    The batch is cut into microbatches, and the function is called with each. It calls the model, and for training
    ``model.backward(loss)``. What it returns is put together: tensors become a :class:`.StepOutput`, other values a
    list with one per microbatch. Every rank of the pipeline calls the decorated function and gets the same result; the
    arguments of the first of them count.

    Args:
        non_split_inputs: names of arguments that each microbatch gets whole.
        input_split_axes: by argument, the axis on which it is cut, if it isn't 0.
        detach_outputs: returned tensors don't keep their graphs.
    """
    if function is None:
        return functools.partial(
            step, non_split_inputs=non_split_inputs, input_split_axes=input_split_axes, detach_outputs=detach_outputs
        )
    body: Function = function
    signature = inspect.signature(body)
    whole, axes = frozenset(non_split_inputs or ()), dict(input_split_axes or {})
    name = f"{body.__module__}.{body.__qualname__}"

    @functools.wraps(body)
    def run(*args: Any, **kwargs: Any) -> Any:
        model = state.model
        if model is None:
            raise SMPStepError(f"{name}: wrap the model with smp.DistributedModel before the first step")
        bound = signature.bind(*args, **kwargs)

        def one(part: inspect.BoundArguments) -> Any:
            result = body(*part.args, **part.kwargs)
            return detached(result) if detach_outputs else result

        def bodies() -> list[Callable[[], Any]]:
            parts = split_arguments(bound, state.cfg.microbatches, whole, axes)
            return [functools.partial(one, part) for part in parts]

        return model.run_step(name, bodies, merge, bound.arguments)

    return run
