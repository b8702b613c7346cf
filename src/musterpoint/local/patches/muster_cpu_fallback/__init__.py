"""Makes a script that knows only CUDA and nccl run on the CPU with gloo: every device "cuda" becomes "cpu".

For trying a script where there is no GPU. Speed and memory of such a run say nothing about a GPU: mixed precision is
off, memory statistics are zero, streams and events only measure time. Tensors and their ``.device`` are the
CPU's; a ``torch.device("cuda")`` keeps its name and means the CPU wherever it is used.

After this package is imported, torch is patched as soon as it is imported. Packages that are for GPUs only have
stand-ins, as far as scripts need them on the CPU: :mod:`.packages`.
"""

from __future__ import annotations

from importlib import import_module
from types import ModuleType

from . import packages


def patch(torch: ModuleType) -> None:
    """Patches a freshly imported ``torch``."""
    import_module("muster_cpu_fallback.torch_on_cpu").patch(torch)


import_module("muster_after_import").after_import("torch", patch)
packages.install()
import_module("muster_after_import").after_import("transformers.modeling_utils", packages.patch_attention)
