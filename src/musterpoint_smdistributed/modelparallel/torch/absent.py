"""Parameters and buffers that live on another rank.

A rank keeps the ``Parameter`` and buffer objects of the whole model, because optimizers and scripts hold them, but
gives up the memory of those it doesn't own. Their names, shapes and types stay. Who computes with one in a step all
the same (a weight that two modules share, a penalty over all weights) gets the owner's value through autograd, and the
owner gets its gradient. Who would change one here, or read it outside of a step, gets an error that says where it is:
there is no way to a value that isn't the owner's.
"""

from __future__ import annotations

import contextlib
import ctypes
from typing import Any, Callable, Iterator, NoReturn

import torch
from torch import nn
from torch.utils import _pytree

from .errors import SMPStepError
from .scheduler import current

Fetch = Callable[[torch.Tensor], torch.Tensor]
Describe = Callable[[torch.Tensor], str]

fetch: Fetch | None = None
"""How to get a value inside of a step; set with the pipeline. None while tracing, and before."""
describe: Describe | None = None
"""``buffer scale of module block, which is on rank 1 of the pipeline``."""
_moving = False

FACTS = frozenset({
    "__len__", "__hash__", "_has_compatible_shallow_copy_type", "_make_subclass", "_is_view",
    "__dir__", "dim", "ndimension", "nelement", "numel", "size", "stride", "element_size", "storage_offset",
    "get_device", "is_floating_point", "is_complex", "is_signed", "is_contiguous", "is_same_size", "is_inference",
    "has_names", "register_hook", "register_post_accumulate_grad_hook", "requires_grad_", "retain_grad",
    "can_cast", "result_type", "zeros_like", "ones_like", "empty_like", "full_like", "rand_like", "randn_like",
    "new_zeros", "new_ones", "new_empty", "new_full", "new_tensor", "is_tensor", "is_conj", "is_neg",
})  # fmt: skip
"""Functions that need nothing but what a tensor says about itself; an absent one takes no others as it is."""
WITHOUT_VALUE = FACTS | {
    "__get__", "__set__", "__delete__", "__repr__", "__format__", "__reduce_ex__", "__deepcopy__", "_backward_hooks",
    "backward", "data_ptr", "untyped_storage", "_typed_storage", "detach", "type", "to", "cpu", "cuda", "half", "float",
    "double", "bfloat16", "is_shared", "share_memory_", "is_pinned", "is_set_to",
}  # fmt: skip
"""And those that move and copy models: for parameters that get their values later or in parts."""
PROPERTIES = frozenset({
    "grad", "grad_fn", "requires_grad", "shape", "dtype", "device", "layout", "ndim", "is_leaf", "itemsize", "nbytes",
    "names", "name", "output_nr", "retains_grad", "is_cpu", "is_cuda", "is_xpu", "is_xla", "is_ipu", "is_mps", "is_hpu",
    "is_mtia", "is_maia", "is_vulkan", "is_meta", "is_sparse", "is_sparse_csr", "is_mkldnn", "is_quantized",
    "is_nested", "_backward_hooks", "_post_accumulate_grad_hooks", "volatile", "_grad", "grad_dtype",
})  # fmt: skip
"""Properties of which the same is true."""
_GRADIENTS = frozenset({"grad", "_grad", "requires_grad", "_backward_hooks", "_post_accumulate_grad_hooks"})
"""Those that may be set here as well: the owner's count."""
_NOT_IN_A_STEP = frozenset({"requires_grad_", "requires_grad"})
"""What a script sets on all ranks alike, outside of steps; in one this rank alone would."""
_IN_PLACE = frozenset({"__setitem__", "__setstate__", "__idiv__"}) | {
    name for name in dir(torch.Tensor) if name[:3] == "__i" and f"__{name[3:]}" in dir(torch.Tensor)
}
"""Operators that change a tensor; methods that do end in ``_``."""


class _Absent:
    """What absent parameters and buffers have in common."""

    @classmethod
    def __torch_function__(
        cls, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        name, own = named(func)
        if not _moving and current() is not None and _NOT_IN_A_STEP & {name, own if name == "__set__" else ""}:
            _refuse_switch(args[0], *args[1:], **kwargs)
        if (
            _moving
            or name in FACTS
            or (name == "__get__" and own in PROPERTIES)
            or (name in ("__set__", "__delete__") and own in _GRADIENTS)
        ):
            with torch._C.DisableTorchFunctionSubclass():
                return func(*args, **kwargs)
        absent = [each for each in _pytree.tree_leaves((args, kwargs)) if isinstance(each, _Absent)]
        first: Any = absent[0]
        if name in ("__repr__", "__format__", "__str__"):
            return f"<{said(first)}; shape {tuple(first.shape)}>"
        if func is torch.autograd.grad:
            no_gradient(first)
        if name == "__set__":
            refuse(first, f"its {own} can't be set here")
        if changes_in_place(name) and args and isinstance(args[0], _Absent):
            refuse(args[0], f"torch.Tensor.{name} would change a copy of it here")
        if fetch is None or name in ("__deepcopy__", "__reduce_ex__"):
            out_of_reach(first, f"torch.Tensor.{own}" if name == "__get__" else f"torch.{name}")
        get_value: Any = fetch
        values = {id(each): get_value(each) for each in absent}
        watched = [(each, watch(values[id(each)])) for each in absent]
        get: Callable[[Any], Any] = lambda each: values[id(each)]  # noqa: E731
        args, kwargs = _pytree.tree_map_only(_Absent, get, (args, kwargs))
        # what .data gives doesn't share the count of changes, and what .detach() gives does
        result = args[0].detach() if own == "data" else func(*args, **kwargs)
        for each, changes in watched:
            if changes():
                refuse(each, f"torch.{name} would change a copy of it here")
        return result

    def set_(self, *args: Any, **kwargs: Any) -> Any:  # torch asks no __torch_function__ for this one
        if not _moving:
            refuse(self, "torch.Tensor.set_ would change it here")
        return super().set_(*args, **kwargs)  # type: ignore[misc]

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "__class__" and not _moving:
            refuse(self, "it can't become another tensor here")
        super().__setattr__(name, value)


class AbsentParameter(_Absent, nn.Parameter):
    """A parameter whose values another rank has."""


class AbsentBuffer(_Absent, torch.Tensor):
    """A buffer that another rank has."""


def named(func: Any) -> tuple[str, str]:
    """A function's name, such as ``__get__``, and that of the property which it is of."""
    return getattr(func, "__name__", ""), getattr(getattr(func, "__self__", None), "__name__", "")


def said(tensor: Any) -> str:
    """The tensor by its name, and where it is."""
    if describe is not None:
        return describe(tensor)
    return f"a {'parameter' if isinstance(tensor, nn.Parameter) else 'buffer'} on another rank of the pipeline"


def changes_in_place(name: str) -> bool:
    """Whether a method of that name changes its tensor."""
    return name in _IN_PLACE or (name[-1:] == "_" and name[-2:] != "__")


def _refuse_switch(tensor: Any, wanted: bool = True, **more: bool) -> None:
    """In a step gradients can't be switched on and off here."""
    if tensor.requires_grad != more.get("requires_grad", wanted):
        refuse(tensor, "requires_grad can't be set here in a step")


def refuse(tensor: Any, what: str) -> NoReturn:
    """Raises the error for a change of something that is elsewhere."""
    raise SMPStepError(
        f"{said(tensor)}: {what}, and its rank wouldn't hear of it. Change it in the forward function of the module "
        "that has it, or on every rank behind the step: model.local_named_parameters() and local_named_buffers() give "
        "each rank its own, model.load_state_dict() sets all"
    )


def no_gradient(tensor: Any) -> NoReturn:
    """Raises the error for a gradient that is asked for by itself."""
    raise SMPStepError(
        f"torch.autograd is asked for a gradient: {said(tensor)}, and only there is one. Ask for gradients of this "
        "rank's parameters and of tensors, or have model.backward() give each rank those of its own in .grad"
    )


def out_of_reach(tensor: Any, what: str) -> NoReturn:
    """Raises the error for a value that can't be had."""
    raise SMPStepError(
        f"{what}: {said(tensor)}, so there is no value here. Inside of an @smp.step function it is fetched; elsewhere "
        "use model.local_parameters() or model.local_buffers(), or model.state_dict() for all values"
    )


def watch(tensor: torch.Tensor) -> Callable[[], bool]:
    """Says later whether ``tensor``, or a view of it, has been changed in place; keeps none of its memory."""
    if tensor.is_inference():
        return lambda: False
    with torch._C.DisableTorchFunctionSubclass():
        probe = tensor.detach()  # has the same count of changes
        probe.data = torch.empty(0, dtype=tensor.dtype, device=tensor.device)
    before = probe._version
    return lambda: probe._version != before


@contextlib.contextmanager
def moving() -> Iterator[None]:
    """Torch's functions that move or convert whole models take absent tensors as they are."""
    global _moving
    before, _moving = _moving, True
    try:
        yield
    finally:
        _moving = before


def is_moving() -> bool:
    """Whether absent tensors are taken as they are."""
    return _moving


def mark(tensor: torch.Tensor) -> None:
    """From now on the owner's value counts, whatever is here still."""
    with moving():
        tensor.__class__ = AbsentParameter if isinstance(tensor, nn.Parameter) else AbsentBuffer


def release(tensor: torch.Tensor) -> None:
    """Gives up the memory of a parameter's or buffer's values and gradient."""
    with moving():
        if isinstance(tensor, nn.Parameter):
            tensor.grad = None
        tensor.data = torch.zeros((), dtype=tensor.dtype, device=tensor.device).expand(tensor.shape)
    mark(tensor)


def is_absent(value: object) -> bool:
    return isinstance(value, _Absent)


def give_back() -> None:
    """Returns freed memory to the system, which glibc's malloc does for large tensors only when it is asked."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
