"""Parameters and buffers that live on another rank.

A rank keeps the ``Parameter`` and buffer objects of the whole model, because optimizers and scripts hold them, but
gives up the memory of those it doesn't own. Their names, shapes and types stay. Who computes with one in a step all
the same (a weight that two modules share, a penalty over all weights) gets the owner's value through autograd, and the
owner gets its gradient. Who would change one here, or read it outside of a step, gets an error that says where it is:
there is no way to a value that isn't the owner's.

Such a tensor has no storage. Torch's Python functions ask its class (``__torch_function__``), above autograd. What
asks nobody there (numbers among arguments, scripts, transforms, code in C++) comes to the kernels, below autograd, and
these ask the class as well (``__torch_dispatch__``): the value is given where no gradient could be lost by that.
"""

from __future__ import annotations

import contextlib
import ctypes
from collections import OrderedDict
from typing import Any, Callable, Iterable, Iterator, NoReturn

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
    "new_zeros", "new_ones", "new_empty", "new_full", "is_tensor", "is_conj", "is_neg",
    "randint_like", "empty_strided", "new_empty_strided",
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
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name, own = named(func)
        in_step = not _moving and current() is not None
        switches = in_step and _NOT_IN_A_STEP & {name, own if name == "__set__" else ""}
        if switches and args[0].requires_grad != [*args[1:], *kwargs.values(), True][0]:
            refuse(args[0], "requires_grad can't be set here in a step")
        if (
            _moving
            or name in FACTS
            or (name == "__get__" and own in PROPERTIES)
            or (name in ("__set__", "__delete__") and own in _GRADIENTS)
        ):
            with torch._C.DisableTorchFunctionSubclass():
                if (own if name == "__set__" else name) in _REPLACING and _PLACE in args[0].__dict__:
                    return True if name != "__set__" else release(args[0], args[1])
                result = func(*args, **kwargs)
                if _NOT_IN_A_STEP & {name, own}:
                    _forbid_gradient(args[0])
            return result
        absent: list[Any] = [each for each in _pytree.tree_leaves((args, kwargs)) if isinstance(each, _Absent)]
        first = absent[0]
        if name in ("__repr__", "__str__"):
            return f"<{said(first)}; shape {tuple(first.shape)}>"
        if func is torch.autograd.grad:
            no_gradient(first)
        if name == "__set__":
            refuse(first, f"its {own} can't be set here")
        if changes_in_place(name) and args and isinstance(args[0], _Absent):
            refuse(args[0], f"torch.Tensor.{name} would change a copy of it here")
        if fetch is None or name in ("__deepcopy__", "__reduce_ex__"):
            out_of_reach(first, f"torch.Tensor.{own}" if name == "__get__" else f"torch.{name}")
        values = {id(each): fetch(each) for each in absent}
        watched = [(each, watch(values[id(each)])) for each in absent]
        args, kwargs = _pytree.tree_map_only(_Absent, lambda each: values[id(each)], (args, kwargs))
        # what .data gives doesn't share the count of changes, and what .detach() gives does
        result = args[0].detach() if own == "data" else func(*args, **kwargs)
        for each, changes in watched:
            if changes():
                refuse(each, f"torch.{name} would change a copy of it here")
        return result

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Gives values to torch's kernels: the owner's where none of them needs a gradient or none is recorded."""
        if func is _DEVICE:
            return args[0].__dict__[_PLACE]
        kwargs = kwargs or {}
        name = func.overloadpacket.__name__
        absent: list[Any] = [each for each in _pytree.tree_leaves((args, kwargs)) if isinstance(each, _Absent)]
        if _moving or name in FACTS:
            with torch._C.DisableTorchFunctionSubclass():
                args, kwargs = _pytree.tree_map_only(_Absent, _stand_in, (args, kwargs))
            return func(*args, **kwargs)
        first = absent[0]
        if name not in _WITHOUT_GRADIENT:
            if func._schema.is_mutable:
                refuse(first, f"torch.{name} would change a copy of it here, or keep one")
            if torch.is_grad_enabled() and any(each.requires_grad for each in absent):
                below_autograd(first, f"torch.{name} would use its value in a scripted function, torch.func or C++")
        if fetch is None:
            out_of_reach(first, f"torch.{name}")
        with torch.no_grad():
            values = {id(each): fetch(each).detach() for each in absent}
            args, kwargs = _pytree.tree_map_only(_Absent, lambda each: values[id(each)], (args, kwargs))
            return func(*args, **kwargs)

    def __format__(self: Any, spec: str) -> str:
        described = self.dim() or (current() is None and not _moving)
        return repr(self) if described else format(self.item(), spec)

    def __deepcopy__(self, memo: Any) -> Any:
        if not _moving:
            out_of_reach(self, "copy.deepcopy")
        return super().__deepcopy__(memo)  # type: ignore[misc]

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "__class__" and not _moving:
            refuse(self, "it can't become another tensor here")
        super().__setattr__(name, value)


class AbsentParameter(_Absent, nn.Parameter):  # type: ignore[misc]
    """A parameter whose values another rank has."""


class AbsentBuffer(_Absent, torch.Tensor):  # type: ignore[misc]
    """A buffer that another rank has."""


_PLACE = "_smp_device"
_REPLACING = frozenset({"data", "_has_compatible_shallow_copy_type"})
"""Functions that convert models: there are no values to replace, but another type or device."""
_DEVICE = torch.ops.prim.device.default
_WITHOUT_GRADIENT = frozenset({"_local_scalar_dense", "detach", "item", "is_nonzero", "equal"})
"""Kernels through which no gradient goes."""


def _stand_in(tensor: torch.Tensor) -> torch.Tensor:
    """A tensor of the same shape and type, for what needs no values."""
    return torch.zeros((), dtype=tensor.dtype, device=tensor.device).expand(tensor.shape)


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


_refused: SMPStepError | None = None
"""The last refusal: torch's scripts make another error of it, without its words."""
_TORCHS = ("AbsentParameter", "AbsentBuffer", "`variable.set_data(tensor)`")
"""Words of torch's own errors where it finds such a tensor and asks nobody."""


def _raise(text: str) -> NoReturn:
    global _refused
    _refused = SMPStepError(text)
    raise _refused


def explained(error: BaseException) -> BaseException:
    """Names the reason of an error where torch doesn't: a value is elsewhere."""
    text = str(error)
    if isinstance(error, SMPStepError) or not isinstance(error, (RuntimeError, TypeError)):
        return error
    if _refused is not None and "TorchScript" in text:
        reason = str(_refused)
    elif any(words in text for words in _TORCHS):
        reason = (
            f"{text}: a parameter or buffer on another rank of the pipeline, which has no value here, is used where "
            "torch takes tensors as they are. Use a copy of its value, such as tensor.clone()"
        )
    else:
        return error
    made = SMPStepError(reason)
    made.__cause__ = error
    return made


def refuse(tensor: Any, what: str) -> NoReturn:
    """Raises the error for a change of something that is elsewhere."""
    _raise(
        f"{said(tensor)}: {what}, and its rank wouldn't hear of it. Change it in the forward function of the module "
        "that has it, or on every rank behind the step: model.local_named_parameters() and local_named_buffers() give "
        "each rank its own, model.load_state_dict() sets all"
    )


def no_gradient(tensor: Any) -> NoReturn:
    """Raises the error for a gradient that is asked for by itself."""
    _raise(
        f"torch.autograd is asked for a gradient: {said(tensor)}, and only there is one. Ask for gradients of this "
        "rank's parameters and of tensors, or have model.backward() give each rank those of its own in .grad"
    )


def below_autograd(tensor: Any, what: str) -> NoReturn:
    """Raises the error for a use through which no gradient gets to the owner."""
    _raise(f"{said(tensor)}: {what}, and its gradient would be lost here. Give it a copy, such as tensor.clone()")


def out_of_reach(tensor: Any, what: str) -> NoReturn:
    """Raises the error for a value that can't be had."""
    _raise(
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


def release(tensor: torch.Tensor, like: torch.Tensor | None = None) -> None:
    """Gives up the memory of a parameter's or buffer's values and gradient; it stays the same object.

    like: has the shape, type and device that it is to have; None: its own.
    """
    kind: Any = AbsentParameter if isinstance(tensor, nn.Parameter) else AbsentBuffer
    with moving(), torch._C.DisableTorchFunctionSubclass():
        like = tensor if like is None else like
        # on "meta" inside: no kernel of a device runs on it, nothing can share or export its memory
        empty = torch.Tensor._make_wrapper_subclass(
            kind, like.size(), like.stride(), dtype=like.dtype, device=torch.device("meta"), dispatch_device=True,
            requires_grad=tensor.requires_grad and tensor.is_leaf,
        )  # fmt: skip
        tensor.__dict__[_PLACE] = like.device
        tensor.__class__ = kind
        torch.clear_autocast_cache()  # which refers to parameters, so that torch wouldn't
        torch._C._swap_tensor_impl(tensor, empty)
        _forbid_gradient(tensor)
    torchs: Any = torch
    torchs.to_dlpack = torchs.utils.dlpack.to_dlpack = _to_dlpack


def _to_dlpack(tensor: torch.Tensor) -> Any:
    """Torch's own reads a tensor's memory and asks nobody."""
    return torch._C._to_dlpack(tensor.detach() if is_absent(tensor) else tensor)


def _forbid_gradient(tensor: Any) -> None:
    """Has a gradient that comes here raise an error: its owner would never get it."""
    if tensor.requires_grad:
        hooks = tensor._post_accumulate_grad_hooks
        hooks = OrderedDict() if hooks is None else hooks  # the same, which the script's handles know
        hooks[-1] = _stays
        hooks.move_to_end(-1, last=False)
        tensor._post_accumulate_grad_hooks = hooks


def _stays(tensor: torch.Tensor) -> NoReturn:
    """A gradient has come, which is for the owner."""
    with moving():
        tensor.grad = None
    below_autograd(tensor, "an autograd.Function or a checkpoint with use_reentrant=True has got it as an argument")


def is_absent(value: object) -> bool:
    return isinstance(value, _Absent)


def release_all(tensors: Iterable[tuple[str, torch.Tensor]]) -> None:
    """Gives up the memory of tensors, and returns it to the system."""
    for _, tensor in tensors:
        release(tensor)
    give_back()


def give_back() -> None:
    """Returns freed memory to the system, which glibc's malloc does for large tensors only when it is asked."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
