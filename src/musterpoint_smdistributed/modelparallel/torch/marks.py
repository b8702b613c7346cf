"""Marks on the modules that are made inside a context of the script's."""

from __future__ import annotations

import contextlib
import functools
from typing import Any, Generic, Iterator, TypeVar, cast

from torch import nn

Mark = TypeVar("Mark")
Default = TypeVar("Default")


class Marks(Generic[Mark]):
    """Marks of one kind: the attribute ``name`` of a module, which a copy of the module has as well."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._inside: list[Mark] = []

    @contextlib.contextmanager
    def on_modules_made_inside(self, mark: Mark) -> Iterator[None]:
        """Modules made inside have ``mark``; of nested contexts the innermost counts."""
        self._inside.append(mark)
        original = nn.Module.__init__
        if len(self._inside) == 1:
            name, inside = self._name, self._inside

            @functools.wraps(original)
            def marking(self: nn.Module, *args: Any, **kwargs: Any) -> None:
                original(self, *args, **kwargs)
                self.__dict__[name] = inside[-1]

            nn.Module.__init__ = marking  # type: ignore[method-assign]
        try:
            yield
        finally:
            self._inside.pop()
            if not self._inside:
                nn.Module.__init__ = original  # type: ignore[method-assign]

    def put_on(self, module: nn.Module, mark: Mark) -> None:
        """Marks ``module`` and all modules in it."""
        for each in module.modules():
            each.__dict__[self._name] = mark

    def of(self, module: nn.Module, default: Default) -> Mark | Default:
        """The mark of ``module``; ``default``: it has none."""
        return cast("Mark | Default", module.__dict__.get(self._name, default))
