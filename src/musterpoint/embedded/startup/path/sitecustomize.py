"""Runs our tasks when the user's Python starts, and has it write whole lines.

The variable MUSTER_STARTUP names the tasks. A task's ``CHANGED`` maps names of modules to functions that get the module
once the program has imported it. Launchers put this directory first on PYTHONPATH. A ``sitecustomize`` of the image's
or the user's own runs as well. Also read out of the one-file launcher's archive.
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False  # importing typing for it would delay every start
if TYPE_CHECKING:
    from importlib.machinery import ModuleSpec, PathFinder
    from importlib.util import module_from_spec
    from types import ModuleType
    from typing import Any, Callable, Sequence
else:  # importlib.util takes five milliseconds; Python itself has these two
    PathFinder = sys.modules["_frozen_importlib_external"].PathFinder
    module_from_spec = sys.modules["_frozen_importlib"].module_from_spec

HERE = os.path.dirname(os.path.abspath(__file__))
TASKS = "MUSTER_STARTUP"
"""The variable: names of modules beside this directory, separated by commas."""
MARK = f"startup of {HERE}"
"""A name in ``sys.modules``: it is there where this very file has run before, not another copy of it."""


CHANGES: dict[str, list[Callable[[Any], None]]] = {}
"""Modules, and the functions that get each when it has been imported."""


class Finder:
    """Finds the modules of :data:`CHANGES` as others do."""

    @staticmethod
    def find_spec(name: str, path: Sequence[str] | None = None, target: object = None) -> ModuleSpec | None:
        spec = PathFinder.find_spec(name, path) if name in CHANGES else None
        if spec is None or spec.loader is None or not hasattr(spec.loader, "exec_module"):
            return None
        run_it = spec.loader.exec_module

        def run_and_change(module: ModuleType) -> None:
            run_it(module)
            for change in CHANGES[name]:
                change(module)

        spec.loader.exec_module = run_and_change  # type: ignore[method-assign]
        return spec


def run(name: str, path: list[str], known_as: str) -> ModuleType | None:
    """Runs the module ``name`` that ``path`` has, if it has one; it is in ``sys.modules`` as ``known_as``."""
    spec = PathFinder.find_spec(name, path)
    if spec is None or spec.loader is None:
        return None
    module = module_from_spec(spec)
    sys.modules[known_as] = module
    spec.loader.exec_module(module)
    return module


def behind() -> list[str]:
    """The entries of ``sys.path`` behind this directory: a module of this file's name there is hidden by this one."""
    entries = [os.path.abspath(entry) for entry in sys.path]
    return sys.path[entries.index(HERE) + 1 :] if HERE in entries else []


def write_whole_lines(*streams: Any) -> None:
    """Lets text wait for its line's end, which PYTHONUNBUFFERED sends piece by piece: ``print()`` writes each of its
    words by itself, and processes that share a pipe would tear each other's lines.

    What is written still goes out with its line, before a crash. Binary writes pass at once, as before; a terminal has
    one reader, who may wait for a prompt.
    """
    for stream in streams:
        try:
            if stream.write_through and not stream.isatty():
                stream.reconfigure(line_buffering=True, write_through=False)
        except Exception:  # it is closed, something else's, or of an older Python
            pass


if MARK not in sys.modules:  # else another sitecustomize has called this one a second time
    sys.modules[MARK] = sys.modules[__name__]
    write_whole_lines(sys.stdout, sys.stderr)
    for task in filter(None, os.environ.get(TASKS, "").split(",")):
        for changed, change in getattr(run(task, [os.path.dirname(HERE)], f"{MARK}: {task}"), "CHANGED", {}).items():
            CHANGES.setdefault(changed, []).append(change)
    if CHANGES:
        sys.meta_path.insert(0, Finder)
    run("sitecustomize", behind(), "sitecustomize")
