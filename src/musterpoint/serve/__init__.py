"""``muster serve``: SageMaker's training API on one machine, with :mod:`musterpoint.local` under it.

A call goes through ``dispatch`` (whose signature, whose service), ``validation`` (botocore's model) and
``operations/table`` to one function. What it changes stands in ``state``, in memory. ``jobs`` starts a process below
the server for each job (``job_main``), hears from it what becomes of the job, and ends it with the server.

To add an operation: a function ``(Request) -> response`` in ``operations/NOUN.py``, and a row in ``operations/table``.

From Python: ``from musterpoint.serve import Server``; ``Client`` for a server that is elsewhere.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from musterpoint.serve.api import Client, Server

__all__ = ["Client", "Server"]


def __getattr__(name: str) -> Any:
    """Imports a class only when it is asked for. The command's options need no boto3."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module("musterpoint.serve.api"), name)
