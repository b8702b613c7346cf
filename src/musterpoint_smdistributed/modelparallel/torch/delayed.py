"""Parameters without memory: of a model that is made in ``smp.delay_param_initialization``, until it is divided.

They have the values that they would have had otherwise, to the last bit; only the rank that keeps one has them in
memory. Whoever uses a value before gets it, and with it the parameter's memory.
"""

from __future__ import annotations

import contextlib
import functools
import weakref
from collections import Counter
from typing import Any, Callable, Iterator, MutableMapping, NamedTuple, cast

import torch
from torch import nn
from torch.utils import _pytree

from . import absent
from .recording import Recorder, View, contents

_ATTRIBUTE = "_smp_delayed"
_VALUES = frozenset({"data", "real", "imag", "T", "mT", "H", "mH"})
"""Attributes of tensors that need values."""
_SHAPED = frozenset({"stride", "is_contiguous"})

Cut = Callable[[torch.Tensor], torch.Tensor]

used = False
"""Whether the script has made anything without memory."""
_active: Recorder | None = None


class Delayed(NamedTuple):
    """How to get a parameter's values.

    dtype: what they are converted to.
    cut: which part of them is this rank's, as a tensor of its own; None: all of them.
    """

    view: View
    dtype: torch.dtype
    cut: Cut | None = None

    def whole(self) -> torch.Tensor:
        """All values, in memory of their own."""
        return self.view.on(contents(self.view.value)).to(self.dtype)

    def part_of(self, whole: torch.Tensor) -> torch.Tensor:
        return whole if self.cut is None else self.cut(whole)

    def size(self) -> torch.Size:
        """Of the part."""
        meta = torch.empty_strided(self.view.size, self.view.stride, dtype=self.dtype, device="meta")
        return self.part_of(meta).size()


class DelayedParameter(nn.Parameter):
    """A parameter that isn't in memory."""

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name, own = absent.named(func)
        if name == "__get__":
            needs_values = own in _VALUES
        elif name == "__set__":
            needs_values = own == "data"
        else:
            needs_values = name not in absent.FACTS and name != "__delete__"
        if name in _SHAPED:
            view = how(args[0]).view
            args = (torch.empty_strided(view.size, view.stride, dtype=view.dtype, device="meta"), *args[1:])
        elif needs_values:
            _pytree.tree_map_only(DelayedParameter, materialize, (args, kwargs))
            return func(*args, **kwargs)
        with torch._C.DisableTorchFunctionSubclass():
            return func(*args, **kwargs)

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        if id(self) not in memo:
            with torch._C.DisableTorchFunctionSubclass():
                copied = nn.Parameter(self.detach(), self.requires_grad)
            memo[id(self)] = _delay(copied, how(self))
        return memo[id(self)]


def how(parameter: Any) -> Delayed:
    """How to get the values of a delayed parameter."""
    return cast(Delayed, parameter.__dict__[_ATTRIBUTE])


def is_delayed(parameter: torch.Tensor) -> bool:
    return isinstance(parameter, DelayedParameter)


def named(module: nn.Module) -> list[tuple[str, nn.Parameter]]:
    """A module's delayed parameters, by their names."""
    return [(name, each) for name, each in module.named_parameters() if is_delayed(each)]


@contextlib.contextmanager
def delay_param_initialization(enabled: bool = True) -> Iterator[None]:
    """Parameters of modules that are made inside have no memory afterwards, unless something else uses their values.

    Where contexts are in each other the outermost delays; one inside that isn't ``enabled`` makes parameters at once.
    """
    global _active, used
    if _active is not None:
        recorder, pause = _active, not enabled
        recorder.pauses += pause
        try:
            yield
        finally:
            recorder.pauses -= pause
        return
    if not enabled:
        yield
        return
    recorder, used = Recorder(), True
    made: weakref.WeakValueDictionary[int, nn.Parameter] = weakref.WeakValueDictionary()
    _active = recorder
    try:
        with _noting(made), recorder.at_memory, recorder:
            yield
    finally:
        _active = None
        _delay_all(recorder, list(made.values()))
        absent.give_back()


delayed_parameter_initialization = delay_param_initialization


@contextlib.contextmanager
def _noting(made: MutableMapping[int, nn.Parameter]) -> Iterator[None]:
    """Parameters that are made inside, copies of others too."""
    original = nn.Parameter.__new__

    @functools.wraps(original)
    def new(cls: type[nn.Parameter], *args: Any, **kwargs: Any) -> Any:
        parameter = original(cls, *args, **kwargs)
        if type(parameter) is nn.Parameter:
            made[id(parameter)] = parameter
        return parameter

    nn.Parameter.__new__ = new  # type: ignore[method-assign,assignment]
    try:
        yield
    finally:
        nn.Parameter.__new__ = original  # type: ignore[method-assign]


def _delay_all(recorder: Recorder, parameters: list[nn.Parameter]) -> None:
    """Takes the memory of those that nothing else is a view of; gives all others theirs."""
    found = [(each, recorder.of(each), recorder.view(each)) for each in parameters]
    holders = Counter(id(contents) for _, contents, _ in found)
    taken = [
        (parameter, known, view)
        for parameter, known, view in found
        if view is not None and known is not None and holders[id(known)] == 1
    ]
    for parameter, _, view in taken:
        _delay(parameter, Delayed(view, view.dtype))
    recorder.restore_all()
    for parameter, known, view in taken:
        storage = known.storage()
        if storage is not None:  # something else has it: they are to be one still
            give(parameter, view.on(storage))


def _delay(parameter: nn.Parameter, how: Delayed) -> nn.Parameter:
    with torch._C.DisableTorchFunctionSubclass():
        parameter.data = torch.zeros((), dtype=how.dtype).expand(how.size())
    parameter.__dict__[_ATTRIBUTE] = how
    parameter.__class__ = DelayedParameter
    return parameter


def give(parameter: nn.Parameter, values: torch.Tensor) -> None:
    """Gives a parameter its memory; it stays the same object."""
    with torch._C.DisableTorchFunctionSubclass():
        parameter.data = values
    parameter.__dict__.pop(_ATTRIBUTE, None)
    parameter.__class__ = nn.Parameter


def materialize(parameter: nn.Parameter) -> nn.Parameter:
    """Gives a parameter its memory and the values that it was made with on this rank."""
    if is_delayed(parameter):
        found = how(parameter)
        give(parameter, found.part_of(found.whole()))
    return parameter


def release(parameter: nn.Parameter) -> None:
    """Another rank has the values; here nobody will ask for them."""
    del parameter.__dict__[_ATTRIBUTE]
    parameter.__class__ = nn.Parameter
    absent.release(parameter)


def divide(parameter: nn.Parameter, cut: Cut) -> None:
    """Its values will be a part of what they are now."""
    _delay(parameter, how(parameter)._replace(cut=cut))


def convert(parameter: nn.Parameter, dtype: torch.dtype) -> None:
    """Its values will be of another type."""
    _delay(parameter, how(parameter)._replace(dtype=dtype))


@contextlib.contextmanager
def set_aside(module: nn.Module) -> Iterator[list[nn.Parameter]]:
    """The module hasn't its delayed parameters inside: whatever moves or converts all it has leaves them alone."""
    away = [
        (each, name, parameter)
        for each in module.modules()
        for name, parameter in each._parameters.items()
        if parameter is not None and is_delayed(parameter)
    ]
    for each, name, _ in away:
        setattr(each, name, None)
    try:
        yield list({id(parameter): parameter for _, _, parameter in away}.values())
    finally:
        for each, name, parameter in away:
            setattr(each, name, parameter)


def apply(module: nn.Module, function: Callable[[], Any], change: Cut) -> None:
    """Calls what changes every parameter of a module by ``change``; delayed ones will be of the type that gives."""
    with set_aside(module) as away:
        function()
    for parameter in away:
        dtype = change(torch.empty(0, dtype=parameter.dtype)).dtype
        if dtype != parameter.dtype:
            convert(parameter, dtype)
