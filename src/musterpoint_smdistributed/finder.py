"""Finds the packages beside this file under the name ``smdistributed``, where no other finder does.

AWS's packages share one top package and are told apart one by one: whichever is installed is the one that is imported,
and the other one is ours. Loaded by itself too (``startup/sitecustomize.py``), so it imports nothing of ours.
"""

from __future__ import annotations

import os
import sys
from importlib.machinery import ModuleSpec, PathFinder
from typing import Sequence

TOP = "smdistributed"
PACKAGES = ("dataparallel", "modelparallel", "shared")
"""Those that there are, each a folder beside this file; ``shared`` is what the other two both use."""
SECOND = "torch.sagemaker"
"""Version 2 of the model-parallel library, which AWS has put into torch; the folder ``sagemaker`` beside this file."""
SWITCH = "SMDISTRIBUTED_SHIM"
"""The variable that switches them off (``0``), or puts them before installed ones (``1``, for tests)."""

_HERE = [os.path.dirname(os.path.abspath(__file__))]


class TopFinder:
    """Finds ``smdistributed`` itself: a namespace without a folder, in which others' packages may lie as well."""

    @staticmethod
    def find_spec(name: str, path: Sequence[str] | None = None, target: object = None) -> ModuleSpec | None:
        return ModuleSpec(name, None, is_package=True) if name == TOP else None


class PackageFinder:
    """Finds ``smdistributed.<package>`` in the folder of this file, wherever ``smdistributed`` itself came from.

    And ``torch.sagemaker``, beside any torch.
    """

    @staticmethod
    def find_spec(name: str, path: Sequence[str] | None = None, target: object = None) -> ModuleSpec | None:
        top, _, package = name.partition(".")
        ours = name == SECOND or (top == TOP and package in PACKAGES)
        return PathFinder.find_spec(name, _HERE) if ours else None


def install() -> None:
    """Puts both behind all other finders, once. Does nothing where ``SMDISTRIBUTED_SHIM=0``.
    Raises ValueError: the variable is neither 0 nor 1."""
    wanted = os.environ.get(SWITCH, "")
    if wanted not in ("", "0", "1"):
        raise ValueError(f"{SWITCH}={wanted!r}: expected 0 (never musterpoint's smdistributed) or 1 (always)")
    if wanted == "0" or installed():
        return
    sys.meta_path.insert(0 if wanted == "1" else len(sys.meta_path), PackageFinder)
    sys.meta_path.append(TopFinder)


def installed() -> bool:
    """Whether this module or another copy of it has been here."""
    return any(getattr(finder, "__qualname__", "") == TopFinder.__qualname__ for finder in sys.meta_path)
