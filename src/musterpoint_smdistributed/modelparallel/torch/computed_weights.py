"""Weights that torch's own hooks compute before each call of their module, as ``torch.nn.utils.weight_norm`` has them.

They are computed on the module's rank. Hooks run on the rank that calls it, which has no parameters to compute them of.
"""

from __future__ import annotations

import functools
from typing import Any, Callable

from torch import nn

_OF_WEIGHTS = ("torch.nn.utils.weight_norm", "torch.nn.utils.spectral_norm", "torch.nn.utils.prune")
"""Where torch has such hooks."""


class ComputedWeights:
    """Of one module; ``names``: the attributes."""

    def __init__(self, module: nn.Module) -> None:
        self._module = module
        self._hooks: dict[int, Any] = {
            key: each for key, each in module._forward_pre_hooks.items() if type(each).__module__ in _OF_WEIGHTS
        }
        self.names = [str(getattr(each, "name", None) or each._tensor_name) for each in self._hooks.values()]

    def in_calls(self, here: bool) -> Callable[..., Any]:
        """The module's forward function for calls of other ranks, which computes them first.

        Args:
            here: whether this rank has the module; where it hasn't, its hooks of this kind go.
        """
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
