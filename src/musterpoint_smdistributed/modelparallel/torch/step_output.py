"""What a step function returned for each microbatch, put together."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import MutableMapping
from typing import Any, Sequence

import torch


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
    if any(type(value) is not type(first) for value in values):
        return list(values)
    if isinstance(first, torch.Tensor):
        return StepOutput(values)
    if isinstance(first, torch.Size):
        return list(values)
    if isinstance(first, (list, tuple)) and all(len(value) == len(first) for value in values):
        merged = [merge(parts) for parts in zip(*values)]
        return type(first)(*merged) if hasattr(first, "_fields") else type(first)(merged)
    if isinstance(first, MutableMapping) and all(value.keys() == first.keys() for value in values):
        mapping = copy.copy(first)
        for key in first:
            mapping[key] = merge([value[key] for value in values])
        return mapping
    if dataclasses.is_dataclass(first) and not isinstance(first, type):
        names = [field.name for field in dataclasses.fields(first)]
        record = copy.copy(first)
        for name in names:
            object.__setattr__(record, name, merge([getattr(value, name) for value in values]))
        return record
    return list(values)


def detached(value: Any) -> Any:
    """The same structure, its tensors without their graphs."""
    if isinstance(value, torch.Tensor):
        return value.detach()
    if isinstance(value, (list, tuple)):
        parts = [detached(part) for part in value]
        return type(value)(*parts) if hasattr(value, "_fields") else type(value)(parts)
    if isinstance(value, MutableMapping):
        mapping = copy.copy(value)
        for key in value:
            mapping[key] = detached(value[key])
        return mapping
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        record = copy.copy(value)
        for field in dataclasses.fields(value):
            object.__setattr__(record, field.name, detached(getattr(value, field.name)))
        return record
    return value
