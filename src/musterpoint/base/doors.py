"""Doors: rooms that most jobs never enter, and whose modules are imported when something of them is first used.

The ``__init__`` of such a room names its modules for readers and type checkers, and opens them for programs::

    __all__ = ["failures"]
    if TYPE_CHECKING:
        from musterpoint.core.diagnosis import failures
    else:
        __getattr__ = opened_when_used(__name__, __all__)

Who uses it imports the room on top, and writes ``diagnosis.failures.cannot_start(…)``.
"""

from __future__ import annotations

from importlib import import_module
from types import ModuleType
from typing import Callable, Collection


def opened_when_used(room: str, modules: Collection[str]) -> Callable[[str], ModuleType]:
    """A ``__getattr__`` for the package ``room``, which imports that one of its ``modules`` which is asked for."""

    def open_module(name: str) -> ModuleType:
        if name not in modules:
            raise AttributeError(f"{room} has no {name}")
        return import_module(f"{room}.{name}")

    return open_module
