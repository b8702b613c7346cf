"""AWS's model-parallel library version 2 by its name, on open PyTorch. Independent of AWS.

Scripts import it ``as tsm``, call ``tsm.init()`` and wrap their model with torch's FSDP. Source of the names: AWS's
documentation ("The SageMaker model parallel library v2 reference").
"""

if __name__ != "torch.sagemaker":
    raise ImportError("import it as torch.sagemaker, after `import musterpoint_smdistributed`: it is one package")

from . import checkpoint, delayed_param, distributed, grad_norm, logger, moe, nn, own_folders, utils
from .state import init, is_initialized, state
from .transforming import transform

own_folders.install_loader()

__version__ = "2.0.0+musterpoint.0.1.0"
"""Of the library whose interface this is, and of musterpoint."""
__shim__ = "musterpoint"

__all__ = [
    "checkpoint", "delayed_param", "distributed", "grad_norm", "init", "is_initialized", "logger", "moe", "nn",
    "state", "transform", "utils",
]  # fmt: skip
