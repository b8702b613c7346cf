"""Has torch patched when it is imported."""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any, Sequence


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
                import_module("muster_cpu_fallback.patch").patch(module)

            loader.exec_module = load_and_patch
        return spec


sys.meta_path.insert(0, AfterImport())
