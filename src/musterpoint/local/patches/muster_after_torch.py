"""Calls functions once ``torch`` has been imported, in a program that may never import it."""

from __future__ import annotations

import sys
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any, Callable, Sequence

_PATCHES: list[Callable[[ModuleType], None]] = []


def after_torch(patch: Callable[[ModuleType], None]) -> None:
    """``patch`` gets the freshly imported ``torch``. In a program these are called in the order of the calls."""
    if not _PATCHES:
        sys.meta_path.insert(0, AfterImport())
    _PATCHES.append(patch)


class AfterImport:
    """A meta path finder that lets the others find ``torch`` and patches it once it is loaded."""

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name != "torch":
            return None
        sys.meta_path.remove(self)
        spec = PathFinder.find_spec(name, path, target)
        if spec is not None and spec.loader is not None:
            loader: Any = spec.loader
            load = loader.exec_module

            def load_and_patch(module: ModuleType) -> None:
                load(module)
                for patch in _PATCHES:
                    patch(module)

            loader.exec_module = load_and_patch
        return spec
