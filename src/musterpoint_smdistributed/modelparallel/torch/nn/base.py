"""What distributed modules have in common: parameters of which each rank of a tensor-parallel group has a part."""

from __future__ import annotations

import inspect
from typing import Any, ClassVar, Iterator, Mapping

import torch
from torch import nn

from .. import distributed_parameters, part_reads
from ..distributed_parameters import Division
from ..state import state


class DistributedModule(nn.Module):
    """A module whose parameters the ranks of a tensor-parallel group share out.

    A state dict of it has this rank's parts; loading takes parts as well as whole values.
    """

    divided: ClassVar[dict[str, int]] = {}
    """The axis of each own parameter that is cut."""
    inside: ClassVar[tuple[str, ...]] = ()
    """Own parameters that are whole, and used with activations that the ranks share."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        forward = vars(cls).get("forward")
        if forward is not None:  # it is called by itself as well, where another rank asks
            cls.forward = part_reads.knowing(forward)

    def divide(self) -> None:
        """Keeps this rank's part of the module's own parameters, which have their whole values still."""
        divisions = self.__dict__.setdefault("_divisions", {})
        for name, dim in self.divided.items():
            parameter = self._parameters.get(name)
            if parameter is not None:
                divisions[name] = distributed_parameters.divide(parameter, dim)
        self.mark()

    def mark(self) -> None:
        """Says of each own parameter how it is divided; again, where a module was copied."""
        for name, found in self.__dict__.get("_divisions", {}).items():
            parameter = self._parameters.get(name)
            if parameter is not None:
                distributed_parameters.mark(parameter, found)
        for name in self.inside:
            parameter = self._parameters.get(name)
            if parameter is not None:
                distributed_parameters.mark_inside(parameter)

    def _load_from_state_dict(self, state_dict: Any, prefix: str, *args: Any) -> None:
        # behind the script's hooks
        handle = self.register_load_state_dict_pre_hook(type(self)._take_parts)  # type: ignore[no-untyped-call]
        try:
            super()._load_from_state_dict(state_dict, prefix, *args)
        finally:
            handle.remove()

    def _take_parts(self, state_dict: Any, prefix: str, *_: Any) -> None:
        divisions: dict[str, Division] = self.__dict__.get("_divisions", {})
        for name, found in divisions.items():
            value = state_dict.get(prefix + name)
            if isinstance(value, torch.Tensor) and found.parts > 1 and tuple(value.shape) == found.shape:
                state_dict[prefix + name] = distributed_parameters.part_of(value, found)


class IndivisibleError(ValueError):
    """A size of a module isn't a multiple of the tensor-parallel degree."""


def indivisible(**sizes: int) -> str | None:
    """Which of these sizes the tensor-parallel degree doesn't divide."""
    degree = state.cfg.tensor_parallel_degree
    wrong = next((name for name, size in sizes.items() if size % degree), None)
    return None if wrong is None else f"{wrong}={sizes[wrong]} isn't a multiple of tensor_parallel_degree {degree}"


def must_divide(name: str, **sizes: int) -> None:
    """Raises IndivisibleError where the tensor-parallel degree doesn't divide a size; ``name``: of the module."""
    wrong = indivisible(**sizes)
    if wrong is not None:
        raise IndivisibleError(f"smp.nn.{name}: {wrong}: choose another size, or torch.nn's own module")


HINTS = frozenset({
    "fused_softmax", "fused_bias_gelu", "fused_dropout", "query_key_layer_scaling", "mask_value",
    "distribute_embedding", "flash_attention", "triton_flash_attention", "full_attention", "zero_init",
})  # fmt: skip
"""Arguments of AWS's modules that say how to compute, and not what."""


def refuse_unknown(what: str, given: Mapping[str, Any]) -> None:
    """Raises TypeError for arguments that are neither hints nor of any distributed module; None is no value."""
    known = {*HINTS, *(name for kind in _kinds(DistributedModule) for name in inspect.signature(kind).parameters)}
    unknown = sorted(name for name, value in given.items() if name not in known and value is not None)
    if unknown:
        raise TypeError(f"{what}: {', '.join(unknown)}: no layer here has such an argument; leave it out")


def _kinds(kind: type) -> Iterator[type]:
    yield kind
    each: type
    for each in kind.__subclasses__():
        yield from _kinds(each)
