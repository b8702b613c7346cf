"""Other tensors in the place of parameters and buffers, as ``torch.func.functional_call`` puts them there for one call.

A module elsewhere has to be called with these: they go there with the arguments, and their gradients come back.
"""

from __future__ import annotations

import contextlib
import itertools
import operator
from typing import Any, Callable, Iterable, Iterator, Mapping, NamedTuple

import torch
from torch import nn

Tensors = dict[str, "torch.Tensor | None"]
"""By their names in the module that is called."""
_values = operator.methodcaller("values")


class _Slot(NamedTuple):
    """Where a tensor is kept: its name in the module that is called, and a dict of torch's with its key there."""

    name: str
    held: dict[str, Any]
    key: str


class Slots:
    """Where a model's modules keep what doesn't change in a step but by such a call.

    Args:
        is_own: whether this rank has a module; its buffers may change.
    """

    def __init__(self, modules: Mapping[str, nn.Module], is_own: Callable[[nn.Module], bool]) -> None:
        self._modules, self._is_own = modules, is_own
        self._slots: dict[str, list[_Slot]] = {}
        self._dicts: dict[str, list[dict[str, Any]]] = {}
        self._copies: dict[int, dict[str, Any]] = {}
        self._before: dict[str, list[Any]] = {}

    def begin(self) -> None:
        """A step begins."""
        self._find("")
        self._copies = {id(held): held.copy() for held in self._dicts[""]}
        self._before.clear()

    def replaced(self, name: str) -> Tensors:
        """What has been put into a module and those in it since the step began; asked for at every call."""
        self._find(name)
        held = self._dicts[name]
        if name not in self._before:
            self._before[name] = _tensors([self._copies[id(each)] for each in held])
        now, before = _tensors(held), self._before[name]
        if len(now) == len(before) and all(map(operator.is_, now, before)):
            return {}
        return {
            name: held.get(key)
            for name, held, key in self._slots[name]
            if held.get(key) is not self._copies[id(held)].get(key)
        }

    def _find(self, name: str) -> None:
        if name in self._slots:
            return
        slots = [
            _Slot(f"{path}.{key}" if path else key, held, key)
            for path, module in self._modules[name].named_modules()
            for held in ((module._parameters,) if self._is_own(module) else (module._parameters, module._buffers))
            for key in held
        ]
        self._slots[name] = slots
        self._dicts[name] = list({id(slot.held): slot.held for slot in slots}.values())


def _tensors(held: Iterable[dict[str, Any]]) -> list[Any]:
    return list(itertools.chain.from_iterable(map(_values, held)))


@contextlib.contextmanager
def put(module: nn.Module, tensors: Tensors) -> Iterator[None]:
    """``module`` and those in it have other tensors inside of this."""
    before: list[tuple[dict[str, Any], str, Any]] = []
    try:
        for name, tensor in tensors.items():
            path, _, key = name.rpartition(".")
            inner = module.get_submodule(path)
            held: dict[str, Any] = inner._parameters if key in inner._parameters else inner._buffers
            before.append((held, key, held[key]))
            held[key] = tensor
        yield
    finally:
        for held, key, tensor in reversed(before):
            held[key] = tensor
