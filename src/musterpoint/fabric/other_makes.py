"""Counts accelerators of other makes than NVIDIA's and AWS's: AMD's GPUs and Intel's Gaudis.

Sources: the kernel's ``drivers/gpu/drm/amd/amdkfd/kfd_topology.c`` (a node without GPU has the ``gpu_id`` 0, and those
that this container may not use can't be read), ROCm's "GPU isolation techniques", torch's ``torch/cuda/__init__.py``
(ROCR_VISIBLE_DEVICES first, then HIP_VISIBLE_DEVICES or CUDA_VISIBLE_DEVICES), the kernel's
``Documentation/accel/introduction.rst`` and ``drivers/accel/habanalabs``.
"""

import os
from typing import Mapping

from musterpoint.fabric.devices import entries, read

HABANA = "0x1da3"


def amd_gpus(environ: Mapping[str, str], root: str = "/") -> int:
    """AMD's GPUs, as HIP would count them."""
    if not os.path.exists(os.path.join(root, "dev/kfd")):
        return 0
    nodes = os.path.join(root, "sys/class/kfd/kfd/topology/nodes")
    ids = (read(os.path.join(nodes, node, "gpu_id")).strip() for node in entries(nodes))
    count = sum(text.isdecimal() and int(text) > 0 for text in ids)
    for names in (("ROCR_VISIBLE_DEVICES",), ("HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES")):
        named = next((environ[name] for name in names if name in environ), None)
        if named is not None:
            count = _visible(named, count)
    return count


def _visible(named: str, present: int) -> int:
    """How many of ``present`` GPUs a list names: it ends at the first entry that names none."""
    for at, word in enumerate(named.split(",")):
        text = word.strip()
        if not (text.startswith("GPU-") or (text.isdecimal() and int(text) < present)):
            return at
    return named.count(",") + 1


def gaudis(root: str = "/") -> int:
    """Gaudis: by their nodes in ``/dev/accel``, before Linux 6.8 ``/dev/hl0``."""
    older = [name for name in entries(os.path.join(root, "dev")) if name.startswith("hl") and name[2:].isdecimal()]
    newer = [
        name for name in entries(os.path.join(root, "dev/accel"))
        if name.startswith("accel") and name[5:].isdecimal()
        and read(os.path.join(root, "sys/class/accel", name, "device/vendor")).strip() == HABANA
    ]  # fmt: skip
    return len(newer) or len(older)
