"""Other tensors in the place of parameters and buffers, as ``torch.func.functional_call`` puts them there for one call.

A module elsewhere has to be called with these: they go there with the arguments, and their gradients come back.
"""

from __future__ import annotations

import functools
import itertools
import operator
from typing import Any, Callable, Iterable, Mapping

import torch
from torch import nn
from torch.nn.utils import parametrize

from .effects import alike
from .errors import SMPStepError

# They are computed on the module's rank. Hooks run on the rank that calls it, which has no parameters to compute them
# of.
OF_WEIGHTS = ("torch.nn.utils.weight_norm", "torch.nn.utils.spectral_norm", "torch.nn.utils.prune")
"""Where torch has such hooks."""


class ComputedWeights:
    """Of one module; ``names``: the attributes."""

    def __init__(self, module: nn.Module) -> None:
        self._module = module
        self._hooks: dict[int, Any] = {
            key: each for key, each in module._forward_pre_hooks.items() if type(each).__module__ in OF_WEIGHTS
        }
        self.names = [str(getattr(each, "name", None) or each._tensor_name) for each in self._hooks.values()]

    def in_calls(self, here: bool) -> Callable[..., Any]:
        """The module's forward function for calls of other ranks, which computes them first.
        ``here``: whether this rank has the module; where it hasn't, its hooks of this kind go."""
        native: Callable[..., Any] = self._module.forward
        if not self._hooks:
            return native
        if not here:
            for key in self._hooks:
                del self._module._forward_pre_hooks[key]

        @functools.wraps(native)
        def run(*args: Any, **kwargs: Any) -> Any:
            for hook in self._hooks.values():
                hook(self._module, args)
            return native(*args, **kwargs)

        return run


Tensors = dict[str, "torch.Tensor | None"]
"""By their names in the module that is called."""
_values = operator.methodcaller("values")
_Slot = tuple[str, dict[str, Any], str]
"""Where a tensor is kept: its name in the module that is called, and a dict of torch's with its key there."""


class Slots:
    """Where a model's modules keep what doesn't change in a step but by such a call.
    ``is_own``: whether this rank has a module; its buffers may change."""

    def __init__(self, modules: Mapping[str, nn.Module], is_own: Callable[[nn.Module], bool]) -> None:
        self._modules, self._is_own = modules, is_own
        self._slots: dict[str, list[_Slot]] = {}
        self._dicts: dict[str, list[dict[str, Any]]] = {}
        self._copies: dict[int, dict[str, Any]] = {}
        self._before: dict[str, list[Any]] = {}

    def begin(self, anew: bool) -> None:
        """A step begins; ``anew``: with other buffers."""
        if anew:
            self._slots.clear()
        self._find("")
        self._copies = {id(held): held.copy() for held in self._dicts[""]}
        self._before.clear()

    def take(self, held: dict[str, Any], key: str) -> None:
        """What is there now counts as the module's own."""
        if id(held) in self._copies:
            self._copies[id(held)].pop(key, None)
            self._copies[id(held)].update({key: held[key]} if key in held else {})
        self._before.clear()
        self._slots.clear()

    def replaced(self, name: str) -> Tensors:
        """What has been put into a module and those in it since the step began; asked for at every call."""
        self._find(name)
        held = self._dicts[name]
        if name not in self._before:
            self._before[name] = _tensors([self._copies[id(each)] for each in held])
        if alike(_tensors(held), self._before[name]):
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
            (f"{path}.{key}" if path else key, held, key)
            for path, module in self._modules[name].named_modules()
            for held in ((module._parameters,) if self._is_own(module) else (module._parameters, module._buffers))
            for key in held
        ]
        self._slots[name] = slots
        self._dicts[name] = list({id(held): held for _, held, _ in slots}.values())


def _tensors(held: Iterable[dict[str, Any]]) -> list[Any]:
    return list(itertools.chain.from_iterable(map(_values, held)))


def refuse_cache(model: nn.Module, why: str) -> None:
    """Raises SMPStepError where the computed weights of a model are in a cache.

    Its graph would be one rank's and one microbatch's.
    """
    if parametrize._cache_enabled and any(map(parametrize.is_parametrized, model.modules())):
        raise SMPStepError(
            f"torch.nn.utils.parametrize.cached(): {why}, and a cache would be one rank's and one microbatch's. Leave "
            "cached() out, or put it into the forward function of a module that is on one rank with all it calls"
        )
