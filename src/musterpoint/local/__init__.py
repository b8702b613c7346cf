"""The control plane on one machine: makes N hosts, runs the job on them, collects the results.

From Python: ``from musterpoint import local; job = local.run("train.py", hosts=2)``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from musterpoint.local.api import HostDescription, JobDescription, run

__all__ = ["HostDescription", "JobDescription", "run"]


def __getattr__(name: str) -> Any:
    """Imports the functions for callers from Python only when they are asked for: hosts import this package, too."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from musterpoint.local import api

    return getattr(api, name)
