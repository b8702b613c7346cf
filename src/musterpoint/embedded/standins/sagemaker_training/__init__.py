"""Stands in for AWS's package on images that have musterpoint instead. Training scripts import ``environment``.

This folder is last on PYTHONPATH, which is still before installed packages. So the real package is searched for
everywhere else and used if found. Nothing of musterpoint is imported here: the program may run in another Python.
"""

from __future__ import annotations

import os
import sys
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import module_from_spec

FOLDER = os.path.join("musterpoint", "embedded", "standins")
OFFERED = ("environment",)


def find_real() -> ModuleSpec | None:
    """The package that a Python without this folder, or another musterpoint's, would import."""
    others = [entry for entry in sys.path if not os.path.abspath(entry).endswith(FOLDER)]
    for finder in sys.meta_path:
        find = getattr(finder, "find_spec", None)
        spec = find and find(__name__, others if finder is PathFinder else None)
        if spec and spec.loader and FOLDER not in (spec.origin or ""):
            return spec  # type: ignore[no-any-return]
    return None


def __getattr__(name: str) -> None:
    if name.startswith("_") or name in OFFERED:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    raise _missing(f"{__name__}.{name}")


def _missing(name: str) -> ImportError:
    return ModuleNotFoundError(
        f"{name}: this image has musterpoint in the place of sagemaker-training, and for scripts "
        "only sagemaker_training.environment; what else they use of it needs the package: pip install "
        "sagemaker-training",
        name=name,
    )


class Missing:
    """The last of the finders: other modules of the package raise the same error."""

    @staticmethod
    def find_spec(name: str, _path: object = None, _target: object = None) -> None:
        if name.startswith(__name__ + ".") and getattr(sys.modules.get(__name__), "find_real", None) is find_real:
            raise _missing(name)


real = find_real()
if real is not None and real.loader is not None:
    module = module_from_spec(real)
    sys.modules[__name__] = module
    real.loader.exec_module(module)
else:
    sys.meta_path.append(Missing)
