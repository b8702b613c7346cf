"""``torch.distributed`` for a script that asks for nccl where there is only gloo."""

from __future__ import annotations

import functools
from importlib import import_module
from types import SimpleNamespace
from typing import Any, Callable

from .replacement import replace


def patch(torch: Any) -> None:
    device_mesh: Any = import_module("torch.distributed.device_mesh")
    distributed_c10d: Any = import_module("torch.distributed.distributed_c10d")

    def gloo(backend: Any) -> Any:
        return "gloo" if backend is None or "nccl" in str(backend).lower() else backend

    def default_gloo(backend: Any) -> Any:
        return backend if backend is None else gloo(backend)

    for name, backend in (("init_process_group", gloo), ("new_group", default_gloo)):
        replace(distributed_c10d, name, backend=backend, device_id=lambda value: None)
    replace(distributed_c10d, "barrier", device_ids=lambda value: None)
    distributed_c10d.all_reduce = _all_reduce(distributed_c10d)
    distributed_c10d.is_nccl_available = lambda: True
    replace(device_mesh, "init_device_mesh", device_type=lambda value: "cpu" if value == "cuda" else value)
    for name in ("init_process_group", "new_group", "barrier", "all_reduce", "is_nccl_available"):
        for module in (torch.distributed, device_mesh):
            if hasattr(module, name):
                setattr(module, name, getattr(distributed_c10d, name))
    torch.distributed.init_device_mesh = device_mesh.init_device_mesh
    _patch_ddp(torch.nn.parallel.DistributedDataParallel, torch)


def _all_reduce(distributed: Any) -> Callable[..., Any]:
    """nccl can average, gloo can't: the sum is divided here."""
    original = distributed.all_reduce

    @functools.wraps(original)
    def all_reduce(tensor: Any, op: Any = distributed.ReduceOp.SUM, group: Any = None, async_op: bool = False) -> Any:
        if op != distributed.ReduceOp.AVG:
            return original(tensor, op, group, async_op)
        original(tensor, distributed.ReduceOp.SUM, group)
        tensor.div_(distributed.get_world_size(group))
        return SimpleNamespace(wait=lambda *args: True, is_completed=lambda: True) if async_op else None

    return all_reduce


def _patch_ddp(ddp: Any, torch: Any) -> None:
    replace(ddp, "__init__", device_ids=lambda value: None, output_device=lambda value: None)
    forward = ddp.forward

    @functools.wraps(forward)
    def forward_alone(self: Any, *args: Any, **kwargs: Any) -> Any:
        if self.training and torch.is_grad_enabled():
            return forward(self, *args, **kwargs)
        # rank 0 evaluating alone gets away with it under nccl, which doesn't wait for the others; gloo does
        due, self.require_forward_param_sync = self.require_forward_param_sync, False
        try:
            return forward(self, *args, **kwargs)
        finally:
            self.require_forward_param_sync = due

    ddp.forward = forward_alone
