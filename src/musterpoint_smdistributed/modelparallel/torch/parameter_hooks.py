"""Hooks of parameters get the whole gradient of a backward pass in plain torch.

Where several calls from other ranks use a parameter, its gradient comes in parts, and its hooks are called with each.
That is the same for hooks that scale or mask a gradient, and not for those that bound it or step an optimizer.
"""

from __future__ import annotations

import functools
from typing import Any, Callable, Iterable, Mapping

import torch
from torch import nn

from . import passes
from .errors import SMPStepError

_LARGE = 1e6
"""Times a gradient it reaches any bound."""


class ParameterHooks:
    """Of the parameters that this rank has."""

    def __init__(self, parameters: Mapping[str, nn.Parameter]) -> None:
        self._parameters = parameters
        self._handles: list[Any] = []
        self._parts: dict[str, tuple[int, torch.Tensor]] = {}
        self._tried: dict[str, list[Callable[..., Any]]] = {}

    def begin(self) -> None:
        """A step begins."""
        self.end()
        for name, parameter in self._parameters.items():
            if not has_any(parameter):
                continue
            of_tensor, behind = _values(parameter._backward_hooks), _values(parameter._post_accumulate_grad_hooks)
            behind = [hook for hook in behind if not _is_ours(hook)]
            if (of_tensor or behind) and parameter.requires_grad:
                heard = functools.partial(self._heard, name, of_tensor, bool(behind))
                handle = parameter.register_hook(heard)  # type: ignore[no-untyped-call]
                parameter._backward_hooks.move_to_end(handle.id, last=False)  # type: ignore[union-attr]
                self._handles.append(handle)

    def end(self) -> None:
        for handle in self._handles:
            handle.remove()
        self._handles.clear()
        self._parts.clear()

    def _heard(self, name: str, hooks: list[Callable[..., Any]], behind: bool, gradient: torch.Tensor) -> None:
        """A part of a gradient has come, perhaps all of it. Hooks are tried once, as they may keep what they get.

        Raises:
            SMPStepError: it isn't the first one, and its hooks make something else of parts than of the whole.
        """
        if self._tried.get(name) == hooks and not behind:
            return
        number = passes.number()
        before = self._parts.get(name)
        if before is None or before[0] != number:
            self._parts[name] = number, gradient.detach().clone()
        elif behind or not all(_is_additive(hooks, before[1] * by, gradient * by) for by in (1.0, _LARGE)):
            raise SMPStepError(
                f"the gradient of parameter {name} comes in parts, since several calls from other ranks of the "
                "pipeline use it, and its hook makes something else of parts than of the whole: change its gradient "
                "behind the step, or put what uses it on one rank (smp.set_partition)"
            )
        else:
            self._tried[name] = hooks


def has_any(parameter: nn.Parameter) -> bool:
    """Whether it has a hook of either kind."""
    return bool(parameter._backward_hooks or parameter._post_accumulate_grad_hooks)


def _is_ours(hook: Callable[..., Any]) -> bool:
    return str(getattr(hook, "__module__", "")).startswith(str(__package__))


def _values(hooks: Any) -> list[Callable[..., Any]]:
    return list((hooks or {}).values())


@torch.no_grad()
def _is_additive(hooks: Iterable[Callable[..., Any]], one: torch.Tensor, two: torch.Tensor) -> bool:
    whole, parts = _hooked(hooks, one + two), _hooked(hooks, one) + _hooked(hooks, two)
    scale = max((one.abs() + two.abs()).max().item(), 1e-30) if one.numel() else 1.0
    return torch.allclose(whole, parts, rtol=1e-3, atol=1e-5 * scale)


def _hooked(hooks: Iterable[Callable[..., Any]], gradient: torch.Tensor) -> torch.Tensor:
    gradient = gradient.clone()
    for hook in hooks:
        changed = hook(gradient)
        gradient = gradient if changed is None else changed
    return gradient
