"""What Python runs first in every process of a job with ``--cpu-fallback``: it has torch patched when it is imported.

This directory then stands first on PYTHONPATH. A ``sitecustomize`` of the user's own runs as well.
"""

from __future__ import annotations

import os
import sys
from importlib import import_module
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import module_from_spec
from types import ModuleType
from typing import Any, Sequence

HERE = os.path.dirname(os.path.abspath(__file__))


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


def run_next() -> None:
    """Runs the ``sitecustomize`` that this one hides."""
    others = [path for path in sys.path if os.path.abspath(path) != HERE]
    spec = PathFinder.find_spec("sitecustomize", others)
    if spec is not None and spec.loader is not None:
        module = module_from_spec(spec)
        sys.modules["sitecustomize"] = module
        spec.loader.exec_module(module)


if os.environ.get("MUSTER_CPU_FALLBACK"):
    sys.meta_path.insert(0, AfterImport())
run_next()
