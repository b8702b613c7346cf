"""Parameters that live on another rank.

A rank keeps the ``Parameter`` objects of the whole model, because optimizers and scripts hold them, but gives up the
memory of those it doesn't own. Their names, shapes and types stay. Where a module computes with one all the same (a
weight that two modules share, a penalty over all weights), the owner is asked for it through autograd, and gets its
gradient.
"""

from __future__ import annotations

import ctypes
from typing import Any, Callable

import torch
from torch import nn
from torch.utils import _pytree

Fetch = Callable[[nn.Parameter], torch.Tensor]

fetch: Fetch | None = None
"""How to get a parameter's value inside of a step; set with the pipeline. None while tracing, and before."""

WITHOUT_VALUE = frozenset({
    "__get__", "__set__", "__delete__", "__repr__", "__format__", "__reduce_ex__", "__len__", "__hash__",
    "_has_compatible_shallow_copy_type", "_make_subclass", "_is_view", "__dir__", "_backward_hooks",
    "dim", "ndimension", "nelement", "numel", "size", "stride", "element_size", "storage_offset", "get_device",
    "is_floating_point", "is_complex", "is_signed", "is_contiguous", "is_same_size", "is_inference", "has_names",
    "register_hook", "register_post_accumulate_grad_hook", "requires_grad_", "retain_grad", "backward",
    "data_ptr", "untyped_storage", "detach", "type", "to", "cpu", "cuda", "half", "float", "double", "bfloat16",
    "is_shared", "share_memory_", "is_pinned", "__deepcopy__", "_typed_storage", "is_set_to", "can_cast", "result_type",
    "zeros_like", "ones_like", "empty_like", "full_like", "rand_like", "randn_like",
    "new_zeros", "new_ones", "new_empty", "new_full", "new_tensor",
})  # fmt: skip
"""Functions that need nothing but what a parameter says about itself, or that move and copy models."""


class AbsentParameter(nn.Parameter):
    """A parameter whose values another rank has."""

    @classmethod
    def __torch_function__(
        cls, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        name = getattr(func, "__name__", "")
        if name in WITHOUT_VALUE:
            with torch._C.DisableTorchFunctionSubclass():
                return func(*args, **kwargs)
        if fetch is None:
            raise RuntimeError(
                f"torch.{name}: the values of a parameter of shape {tuple(args[0].shape) if args else '?'} are on "
                "another rank of the pipeline. Outside of an @smp.step function use model.local_parameters(), or "
                "model.state_dict() for all values"
            )
        get = fetch
        args, kwargs = _pytree.tree_map_only(AbsentParameter, get, (args, kwargs))
        return func(*args, **kwargs)


def release(parameter: nn.Parameter) -> None:
    """Gives up the memory of a parameter's values and gradient."""
    parameter.grad = None
    parameter.data = torch.zeros((), dtype=parameter.dtype, device=parameter.device).expand(parameter.shape)
    parameter.__class__ = AbsentParameter


def give_back() -> None:
    """Returns freed memory to the system, which glibc's malloc does for large tensors only when it is asked."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
