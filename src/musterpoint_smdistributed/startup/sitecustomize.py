"""Installs the finder when Python starts, in the programs of a job that asks for smdistributed.

The launchers put this directory first on PYTHONPATH. A ``sitecustomize`` of the image's or the user's own runs as well.
Also read out of the one-file launcher's archive, by interpreters older than musterpoint's own.
"""

from __future__ import annotations

import os
import sys
from importlib.machinery import PathFinder
from importlib.util import module_from_spec
from types import ModuleType
from typing import Any

HERE = os.path.dirname(os.path.abspath(__file__))
FINDER = f"finder of {HERE}"
"""The finder's name in ``sys.modules``: it is there where this very file has run before, not another copy of it."""


def load(name: str, path: list[str], known_as: str) -> Any:
    """The module ``name`` that ``path`` has, or None; it is in ``sys.modules`` as ``known_as`` before it runs."""
    spec = PathFinder.find_spec(name, path)
    if spec is None or spec.loader is None:
        return None
    module: ModuleType = module_from_spec(spec)
    sys.modules[known_as] = module
    spec.loader.exec_module(module)
    return module


def behind() -> list[str]:
    """The entries of ``sys.path`` behind this directory: a module of this file's name there is hidden by this one."""
    entries = [os.path.abspath(entry) for entry in sys.path]
    return sys.path[entries.index(HERE) + 1 :] if HERE in entries else []


if FINDER not in sys.modules:  # else another sitecustomize has called this one a second time
    load("finder", [os.path.dirname(HERE)], known_as=FINDER).install()
    load("sitecustomize", behind(), known_as="sitecustomize")
