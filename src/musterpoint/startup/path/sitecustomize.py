"""Runs our tasks in the user's Python when it starts: those that the variable MUSTER_STARTUP names.

Launchers put this directory first on PYTHONPATH. A ``sitecustomize`` of the image's or the user's own runs as well.
Also read out of the one-file launcher's archive.
"""

from __future__ import annotations

import os
import sys
from importlib.machinery import PathFinder
from importlib.util import module_from_spec

HERE = os.path.dirname(os.path.abspath(__file__))
TASKS = "MUSTER_STARTUP"
"""The variable: names of modules beside this directory, separated by commas."""
MARK = f"startup of {HERE}"
"""A name in ``sys.modules``: it is there where this very file has run before, not another copy of it."""


def run(name: str, path: list[str], known_as: str) -> None:
    """Runs the module ``name`` that ``path`` has, if it has one; it is in ``sys.modules`` as ``known_as``."""
    spec = PathFinder.find_spec(name, path)
    if spec is not None and spec.loader is not None:
        module = module_from_spec(spec)
        sys.modules[known_as] = module
        spec.loader.exec_module(module)


def behind() -> list[str]:
    """The entries of ``sys.path`` behind this directory: a module of this file's name there is hidden by this one."""
    entries = [os.path.abspath(entry) for entry in sys.path]
    return sys.path[entries.index(HERE) + 1 :] if HERE in entries else []


if MARK not in sys.modules:  # else another sitecustomize has called this one a second time
    sys.modules[MARK] = sys.modules[__name__]
    for task in filter(None, os.environ.get(TASKS, "").split(",")):
        run(task, [os.path.dirname(HERE)], f"{MARK}: {task}")
    run("sitecustomize", behind(), "sitecustomize")
