"""Packages whose code is for GPUs: stand-ins for what scripts ask of them although they don't need it here.

NVIDIA's ``transformer_engine`` has kernels of CUDA only, and can't be imported where CUDA isn't. Scripts that import
it at their beginning use it for FP8 alone. ``flash_attn`` and transformers' ``flash_attention_2`` computes what torch's
attention does.
"""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any, NoReturn, Sequence

_ENGINE, _FLASH = "transformer_engine", "flash_attn"
_MODULES = frozenset(
    {
        _ENGINE,
        f"{_ENGINE}.common",
        f"{_ENGINE}.common.recipe",
        f"{_ENGINE}.pytorch",
        _FLASH,
        f"{_FLASH}.flash_attention",
    }
)


class Unusable:
    """In the place of a class of such a package."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        _refuse(type(self).__name__)


def _refuse(name: str) -> NoReturn:
    raise RuntimeError(f"{_ENGINE}: {name} needs a GPU. Under --cpu-fallback leave FP8 and its layers off")


class Packages(MetaPathFinder, Loader):
    """Finds these packages where there are none."""

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name not in _MODULES or ("." not in name and PathFinder.find_spec(name, path, target) is not None):
            return None
        return ModuleSpec(name, self, is_package=not name.endswith((".recipe", ".flash_attention")))

    def exec_module(self, module: ModuleType) -> None:
        name = module.__name__
        vars(module)["__getattr__"] = lambda wanted: _wanted(name, wanted)


def _wanted(module: str, name: str) -> Any:
    """A class that can be named and not made. Modules and what Python asks of a module aren't there."""
    if name == "FlashAttention" and module == f"{_FLASH}.flash_attention":
        return import_module("muster_cpu_fallback.attention").FlashAttention
    inner = (f"{_ENGINE}.common.recipe", f"{_ENGINE}.pytorch")
    if name.startswith("__") or f"{module}.{name}" in _MODULES or module not in inner:
        raise AttributeError(f"module {module!r} has no attribute {name!r}")
    return type(name, (Unusable,), {})


def install() -> None:
    sys.meta_path.append(Packages())


def patch_attention(modeling: Any) -> None:
    """Has models of a freshly imported ``transformers.modeling_utils`` take torch's attention for FlashAttention."""
    model = modeling.PreTrainedModel
    choose = getattr(model, "_check_and_adjust_attn_implementation", None)
    if choose is None:
        return

    def chosen(self: Any, attn_implementation: Any, *args: Any, **kwargs: Any) -> Any:
        if str(attn_implementation).startswith("flash_attention"):
            attn_implementation = "sdpa"
        return choose(self, attn_implementation, *args, **kwargs)

    model._check_and_adjust_attn_implementation = chosen
