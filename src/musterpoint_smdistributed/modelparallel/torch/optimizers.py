"""Apex's fused optimizers, where apex is installed; else refused when they are made."""

import importlib

from . import unsupported

try:
    _made = vars(importlib.import_module("apex.optimizers"))
except ImportError:
    _made = unsupported.classes(
        "optimizers", ("FusedNovoGrad", "FusedLAMB"), "install apex, or use an optimizer of torch.optim"
    )

FusedNovoGrad = _made["FusedNovoGrad"]
FusedLAMB = FusedLamb = _made["FusedLAMB"]
"""By apex's spelling and by the library's."""
