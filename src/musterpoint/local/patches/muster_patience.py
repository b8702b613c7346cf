"""Lets ranks wait for one that a person debugs (``muster local --debug``): collectives and stores time out after days.

torch's own limits are 10 and 30 minutes. A limit that the program sets for a process group is replaced, too.
"""

from __future__ import annotations

import functools
import inspect
from datetime import timedelta
from importlib import import_module
from types import ModuleType
from typing import Any, Callable

PATIENCE = timedelta(days=7)


def patch(torch: ModuleType) -> None:
    """Patches a freshly imported ``torch``."""
    distributed: Any = torch.distributed
    if not distributed.is_available():
        return
    c10d: Any = import_module("torch.distributed.distributed_c10d")
    for name in ("init_process_group", "new_group"):
        patient = _patient(getattr(c10d, name))
        for module in (c10d, distributed):
            setattr(module, name, patient)


def _patient(function: Callable[..., Any]) -> Callable[..., Any]:
    signature = inspect.signature(function)

    @functools.wraps(function)
    def waits(*args: Any, **kwargs: Any) -> Any:
        bound = signature.bind(*args, **kwargs)
        bound.arguments["timeout"] = PATIENCE
        return function(*bound.args, **bound.kwargs)

    return waits


import_module("muster_after_import").after_import("torch", patch)
