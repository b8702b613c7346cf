"""Makes a script that knows only CUDA and nccl run on the CPU with gloo: every device "cuda" becomes "cpu".

For trying a script where there is no GPU. Speed and memory of such a run say nothing about a GPU: mixed precision is
off, memory statistics are zero, streams and events only measure time. Tensors and their ``.device`` are the
CPU's; a ``torch.device("cuda")`` keeps its name and means the CPU wherever it is used.

After this package is imported, torch is patched as soon as it is imported.
"""

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
                import_module("muster_cpu_fallback.torch_on_cpu").patch(module)

            loader.exec_module = load_and_patch
        return spec


sys.meta_path.insert(0, AfterImport())
