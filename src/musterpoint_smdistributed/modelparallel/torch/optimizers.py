"""Apex's fused optimizers, where apex is installed; else refused when they are made."""

import importlib
from typing import Any

from ..backend.exceptions import SMPUnsupportedError


def _refused(name: str) -> type:
    """A class of which there are no instances and which nothing can be derived from."""

    def unusable(*args: Any, **kwargs: Any) -> Any:
        raise SMPUnsupportedError(
            f"smp.optimizers.{name}: musterpoint's smdistributed.modelparallel doesn't have it yet; install apex, or "
            "use an optimizer of torch.optim"
        )

    return type(name, (), {"__new__": unusable, "__init_subclass__": classmethod(unusable)})


try:
    _made = vars(importlib.import_module("apex.optimizers"))
except ImportError:
    _made = {name: _refused(name) for name in ("FusedNovoGrad", "FusedLAMB")}

FusedNovoGrad = _made["FusedNovoGrad"]
FusedLAMB = FusedLamb = _made["FusedLAMB"]
"""By apex's spelling and by the library's."""
