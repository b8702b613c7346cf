"""The class that a module elsewhere has on this rank: who reads or changes an attribute of it asks the guard."""

from __future__ import annotations

from typing import Any, Protocol

from torch import nn

from .attributes import OF_TORCH
from .scheduler import current


class Asked(Protocol):
    """What a module elsewhere asks; :mod:`.guard` has it. ``quiet``: above 0 the copies here are read and set."""

    quiet: int

    def read(self, module: nn.Module, name: str, value: Any) -> Any: ...

    def write(self, module: nn.Module, name: str, value: Any) -> bool: ...

    def remember_write(self) -> None: ...

    def forbid_delete(self, module: nn.Module, name: str) -> None: ...

    def dictionary(self, module: nn.Module) -> None: ...


_get = object.__getattribute__


def guarded(kind: type[nn.Module], guard: Asked) -> type[nn.Module]:
    """The class of a module that is elsewhere.

    Raises:
        TypeError: ``kind`` isn't made of Python alone.
    """

    def read(self: Any, name: str) -> Any:
        value = kind.__getattribute__(self, name)
        if name in OF_TORCH:
            return value
        if name[:2] == "__":
            if name == "__dict__":
                guard.dictionary(self)
            return value
        if guard.quiet or name not in _get(self, "__dict__"):
            return value
        return guard.read(self, name, value)

    def write(self: Any, name: str, value: Any) -> None:
        if guard.quiet or current() is None or (name in OF_TORCH and name != "training"):
            kind.__setattr__(self, name, value)
        elif guard.write(self, name, value):
            kind.__setattr__(self, name, value)
            guard.remember_write()

    def delete(self: Any, name: str) -> None:
        if current() is not None and not guard.quiet:
            guard.forbid_delete(self, name)
        kind.__delattr__(self, name)

    inside = {
        "__getattribute__": read,
        "__setattr__": write,
        "__delattr__": delete,
        "__module__": kind.__module__,
        "__qualname__": kind.__qualname__,
        "__doc__": kind.__doc__,
    }
    return type(kind.__name__, (kind,), inside)
