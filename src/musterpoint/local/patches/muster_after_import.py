"""Calls functions once a module has been imported, in a program that may never import it."""

from __future__ import annotations

import sys
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any, Callable, Sequence

_PATCHES: dict[str, list[Callable[[ModuleType], None]]] = {}


def after_import(name: str, patch: Callable[[ModuleType], None]) -> None:
    """``patch`` gets the freshly imported module ``name``. Several of one module are called in the order given."""
    if name in sys.modules:
        patch(sys.modules[name])
        return
    if not any(isinstance(finder, AfterImport) for finder in sys.meta_path):
        sys.meta_path.insert(0, AfterImport())
    _PATCHES.setdefault(name, []).append(patch)


class AfterImport:
    """A meta path finder that lets the others find a module and patches it once it is loaded."""

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        spec = PathFinder.find_spec(name, path, target) if name in _PATCHES else None
        # many only look whether there is such a module (importlib.util.find_spec), and import it later or never
        if spec is not None and hasattr(spec.loader, "exec_module"):
            loader: Any = spec.loader
            load = loader.exec_module

            def load_and_patch(module: ModuleType) -> None:
                load(module)
                for patch in _PATCHES.pop(name, ()):
                    patch(module)

            loader.exec_module = load_and_patch
        return spec
