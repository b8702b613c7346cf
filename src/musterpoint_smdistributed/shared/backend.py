"""The backend ``smddp`` of torch.distributed: gloo for tensors on the CPU, NCCL for those on GPUs, in one group.

A process group of torch's own holds both and picks one by the tensors' device, in C++. So a collective costs what it
costs with gloo or NCCL alone, and whatever works with them works with it.
"""

from __future__ import annotations

import atexit
import os
import time
import weakref
from typing import Any

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import HashStore
from torch.distributed import Backend, ProcessGroup, ProcessGroupGloo
from torch.distributed.distributed_c10d import PrefixStore

NAME = "smddp"

GROUPS: weakref.WeakSet[ProcessGroup] = weakref.WeakSet()
"""The groups of this backend, also destroyed ones, as long as a model has them."""


_ours = False
"""Whether :func:`register` has been here: whoever comes second uses the same backend."""


def register() -> bool:
    """Makes the backend known to torch, once; False where another one of that name already is: AWS's.
    Raises ImportError: torch is older than the process groups that hold several backends."""
    global _ours
    if _ours or NAME in Backend.backend_list:
        return _ours
    if not hasattr(ProcessGroup, "_set_default_backend"):
        raise ImportError(f"the backend {NAME} needs torch 2.6 or newer, and this is torch {torch.__version__}")
    # devices: without them torch warns, and takes the backend for the default of every device
    Backend.register_backend(NAME, create, extended_api=True, devices=["cpu", "cuda"])
    # gloo's threads give their last tensors back; torch 2.10 and newer abort where Python ends before they have
    atexit.register(time.sleep, 0.1)
    _ours = True
    return True


def create(group: Any, options: Any = None) -> ProcessGroup:
    """The process group that torch asks for; torch adopts it as it is.

    ``group`` says which it is (torch's ``_DistributedBackendOptions``); ``options`` are NCCL's, as for that backend.
    """
    made = ProcessGroup(group.store, group.group_rank, group.group_size)
    gloo = _gloo(group)
    made._register_backend(torch.device("cpu"), ProcessGroup.BackendType.GLOO, gloo)
    default = ProcessGroup.BackendType.GLOO
    if has_nccl():
        choose_gpu()
        nccl = _nccl(group, options)
        made._register_backend(torch.device("cuda"), ProcessGroup.BackendType.NCCL, nccl)
        default = ProcessGroup.BackendType.NCCL
    made._set_default_backend(default)
    GROUPS.add(made)
    return made


def default() -> str:
    """What torch calls the backend: ours, or what there is where another one has its name."""
    if register():
        return NAME
    return "cpu:gloo,cuda:nccl" if has_nccl() else "gloo"


def join(name: str) -> None:
    """Joins the ranks that a launcher has started; without one this is the only rank."""
    if "RANK" in os.environ:
        dist.init_process_group(name)
    else:
        dist.init_process_group(name, store=HashStore(), rank=0, world_size=1)


def has_nccl() -> bool:
    """Whether this torch has NCCL and sees a GPU. torch.cuda's own answer may be one that --cpu-fallback gives."""
    count = getattr(torch._C, "_cuda_getDeviceCount", None)
    return count is not None and hasattr(dist, "ProcessGroupNCCL") and count() > 0


def choose_gpu() -> None:
    """Makes ``cuda`` this rank's own GPU, where the script hasn't chosen one.

    Scripts for AWS's library wrap the model before they call ``set_device``, or never do. All ranks of a host would be
    on its first GPU, which NCCL refuses.
    """
    local_rank = os.environ.get("LOCAL_RANK", "")
    if local_rank.isdecimal() and int(local_rank) < torch.cuda.device_count() and torch.cuda.current_device() == 0:
        torch.cuda.set_device(int(local_rank))


def _gloo(group: Any) -> Any:
    gloo = ProcessGroupGloo(PrefixStore("cpu/", group.store), group.group_rank, group.group_size, group.timeout)
    _name(gloo.options, group)
    gloo._set_sequence_number_for_group()
    return gloo


def _nccl(group: Any, options: Any) -> Any:
    options = options or dist.ProcessGroupNCCL.Options()
    options._timeout = group.timeout
    _name(options, group)
    nccl = dist.ProcessGroupNCCL(PrefixStore("cuda/", group.store), group.group_rank, group.group_size, options)
    nccl._set_sequence_number_for_group()
    return nccl


def _name(options: Any, group: Any) -> None:
    """Which group it is, for torch's own logs; not every version's options have a place for it."""
    for name, value in (("global_ranks_in_group", group.global_ranks_in_group), ("group_name", group.group_id)):
        if hasattr(options, name):
            setattr(options, name, value)
