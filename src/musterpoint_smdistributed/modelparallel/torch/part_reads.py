"""Who computes with a part of a parameter as if it were the whole: an error, in the first steps.

Ranks that share tensors have a part of each divided parameter. Their own modules (:mod:`.nn`) know that; a penalty
over ``model.parameters()`` or a layer that borrows another one's weight doesn't, and would compute something else than
in one process.
"""

from __future__ import annotations

import contextlib
import functools
import threading
from typing import Any, Callable, ContextManager, Iterator, TypeVar

import torch
from torch import nn
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree

from . import agreement
from .absent import FACTS, PROPERTIES, named
from .distributed_parameters import division
from .errors import SMPStepError
from .state import state

Function = TypeVar("Function", bound=Callable[..., Any])

_ABOUT = FACTS | PROPERTIES | {"_version", "data_ptr", "untyped_storage"}
"""Functions that need nothing but what a tensor says of itself."""


class _Inside(threading.local):
    """Of this thread.

    depth: how many distributed modules are being called, one in the other.
    looks: how many contexts of the script's own code look.
    """

    depth = looks = 0


_inside = _Inside()
_looking = False


def begin(calls: int) -> None:
    """A step function is called, which has been so often before: decides whether this rank looks."""
    global _looking
    _looking = state.group("tp").size > 1 and calls < agreement.FIRST_STEPS


def refused() -> ContextManager[Any]:
    """A context for the script's own code in a step."""
    return _Refusing() if _looking else contextlib.nullcontext()


@contextlib.contextmanager
def allowed() -> Iterator[None]:
    """A context for modules that know what they have."""
    _inside.depth += 1
    try:
        yield
    finally:
        _inside.depth -= 1


def compare(module: nn.Module | None, arguments: Any = ()) -> None:
    """As :func:`.agreement.check`, where this rank looks and has a batch of its own."""
    if _inside.looks and not _inside.depth and not state.cfg.prescaled_batch and not state.tracing:
        agreement.check(module, arguments)


def knowing(forward: Function) -> Function:
    """``forward`` of such a module."""

    @functools.wraps(forward)
    def called(module: Any, *args: Any, **kwargs: Any) -> Any:
        compare(module, (args, kwargs))
        for name, each in module._parameters.items():
            if each is not None and not isinstance(each, nn.Parameter):
                raise SMPStepError(
                    f"{name} of a {type(module).__name__} has another tensor in its place "
                    "(torch.func.functional_call), of which each rank needs a part. Leave the module out of tensor "
                    "parallelism (smp.set_tensor_parallelism(module, False))"
                )
        with allowed():
            return forward(module, *args, **kwargs)

    return called  # type: ignore[return-value]


class _Refusing(TorchFunctionMode):
    def __enter__(self) -> Any:
        _inside.looks += 1
        return super().__enter__()  # type: ignore[no-untyped-call]

    def __exit__(self, *error: Any) -> None:
        _inside.looks -= 1
        super().__exit__(*error)  # type: ignore[no-untyped-call]

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if not _inside.depth and _called(func) not in _ABOUT:
            for each in map(_unwrapped, _pytree.tree_leaves((args, kwargs))):
                if isinstance(each, nn.Parameter) and division(each) is not None:
                    raise SMPStepError(_said(each, _called(func)))
        return func(*args, **kwargs)


def _unwrapped(value: Any) -> Any:
    """The tensor that ``torch.func``'s transforms have wrapped, or the value itself."""
    if torch._C._are_functorch_transforms_active():
        while isinstance(value, torch.Tensor) and torch._C._functorch.is_functorch_wrapped_tensor(value):
            value = torch._C._functorch.get_unwrapped(value)
    return value


def _called(func: Callable[..., Any]) -> str:
    """The function's name; of a property the property's."""
    name, own = named(func)
    return own if name in ("__get__", "__set__", "__delete__") else name


def _said(parameter: nn.Parameter, name: str) -> str:
    found = division(parameter)
    assert found is not None
    called = [key for key, each in state.model.module.named_parameters() if each is parameter]
    return (
        f"torch.{name}: {called[0] if called else 'a parameter'} is divided over {found.parts} ranks, and rank "
        f"{state.group('tp').rank} of them has a part of it, so this would compute something else than in one process. "
        "Leave its module out of tensor parallelism (smp.set_tensor_parallelism(module, False)), or what reads it"
    )
