"""Compares a chain of stages with the container it was made of, once, while one rank still has all of it."""

from __future__ import annotations

import contextlib
import random
from typing import Any, Callable, Iterable, Iterator, NamedTuple, Sequence

import torch
from torch import nn
from torch.utils import _pytree
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes

from . import aliases, part_reads
from .connection import once
from .effects import Copies
from .packing import pack, unpack
from .stages import Chain, Constant

_UNCOMPARED = {
    "use_reentrant=True": "torch asks for no single gradients through a checkpoint with use_reentrant=True",
    "saved tensor hooks": "it has transforms of torch.func, which know no hooks of saved tensors",
}
"""Reasons not to compare, by words of torch's errors."""


def differs(
    container: nn.Module, native: Callable[..., Any], chain: Chain, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> str | None:
    """What the chain gets wrong for these arguments, or None: its result, or any gradient of inputs and parameters.

    The model is afterwards as it was.
    """
    with untouched(container):
        try:
            own = _outcome(container, native, args, kwargs)
        except RuntimeError as error:
            refused = next((why for words, why in _UNCOMPARED.items() if words in str(error)), None)
            if refused is None:
                raise
            return refused
    with untouched(container):
        try:
            chained = _outcome(container, lambda *args, **kwargs: _by_stages(chain, args, kwargs), args, kwargs)
        except Exception as error:  # whatever the traced code fails with here, it would fail with later
            return f"{type(error).__name__}: {error}"
    return own.compare(chained)


class _Outcome(NamedTuple):
    """A result, taken apart, what in it are views, and the gradients for some gradient of it."""

    leaves: list[Any]
    structure: _pytree.TreeSpec
    views: tuple[aliases.View | None, ...]
    gradients: Sequence[torch.Tensor | None]

    def compare(self, other: _Outcome) -> str | None:
        if self.structure != other.structure:
            return f"it returns {other.structure} and not {self.structure}"
        if not all(map(_alike, self.leaves, other.leaves)):
            return "its result is another one"
        if self.views != other.views:
            return "its results are views of arguments or of each other"
        for gradient, its in zip(self.gradients, other.gradients):
            if (gradient is None) != (its is None) or (gradient is not None and not _alike(gradient, its)):
                return "its gradients are others"
        return None


def _outcome(container: nn.Module, function: Callable[..., Any], args: Any, kwargs: Any) -> _Outcome:
    packed = pack((args, kwargs), None, "an argument")
    inputs = [tensor.detach().clone().requires_grad_(tensor.requires_grad) for tensor in packed.tensors]
    # a checkpoint around the container keeps what is saved in its own way, and would run it again for these gradients
    with torch.enable_grad(), torch.autograd.graph.saved_tensors_hooks(lambda saved: saved, lambda saved: saved):
        # as results of something: a module may change its input in place
        given = [tensor.clone() for tensor in inputs]
        args, kwargs = unpack(packed.data, given, None)
        value = function(*args, **kwargs)
        tensors = [leaf for leaf in _pytree.tree_leaves(value) if isinstance(leaf, torch.Tensor)]
        views, results = aliases.found(tensors, given), [each for each in tensors if each.requires_grad]
        wanted = [tensor for tensor in (*inputs, *container.parameters()) if tensor.requires_grad]
        generator = torch.Generator().manual_seed(1)
        seeds = [torch.rand(leaf.shape, generator=generator).to(leaf) for leaf in results]
        gradients: Sequence[torch.Tensor | None] = ()
        if results and wanted:
            with part_reads.allowed():
                gradients = torch.autograd.grad(results, wanted, seeds, allow_unused=True)
    detached = _pytree.tree_map_only(torch.Tensor, torch.Tensor.detach, value)
    return _Outcome(*_pytree.tree_flatten(detached), views, gradients)


def _by_stages(chain: Chain, args: Any, kwargs: Any) -> Any:
    """Each stage gets copies, as over a connection: it sees no change in place that another one makes."""
    packed = pack((args, kwargs), None, "an argument")
    value: Any = chain.begin(packed.tensors)
    for stage in chain.stages:
        sent = pack(value, None, "a value")
        value = stage(unpack(sent.data, [tensor.clone() for tensor in sent.tensors], None))
    return value


def _alike(one: Any, two: Any) -> bool:
    if type(one) is not type(two):
        return False
    if not isinstance(one, torch.Tensor):
        return not isinstance(one, Constant) or bool(one == two)
    if one.layout != two.layout:
        return False
    one, two = one.to_dense(), two.to_dense()  # gradients of an embedding with sparse=True
    if one.shape != two.shape or one.dtype != two.dtype or one.requires_grad != two.requires_grad:
        return False
    if not (one.is_floating_point() or one.is_complex()):
        return torch.equal(one, two)
    tolerance = 100 * torch.finfo(one.dtype).eps
    scale = one.abs().max().item() if one.numel() else 0.0
    return torch.allclose(one, two, rtol=tolerance, atol=tolerance * max(scale, 1e-30), equal_nan=True)


@contextlib.contextmanager
def untouched(module: nn.Module, all_of_it: bool = False) -> Iterator[Callable[[], bool]]:
    """What runs inside changes no buffer, no random numbers and no attribute of any module.

    all_of_it: and no parameter, which forward functions may change as well (an average of another module's). Gives a
        function that says whether any was.
    """
    devices = [torch.cuda.current_device()] if torch.cuda.is_available() else []
    buffers = [(values := once(buffer.detach()), values.clone()) for buffer in module.buffers()]
    attributes = Copies(dict(module.named_modules()))
    written = _Written(module.parameters()) if all_of_it else None
    dice = random.getstate()
    try:
        with torch.random.fork_rng(devices), written or contextlib.nullcontext():
            yield lambda: written is not None and written.any()
    finally:
        random.setstate(dice)
        attributes.put_back()  # buffers among them, which the values go into
        with torch.no_grad():
            for buffer, before in buffers:
                buffer.copy_(before)
        if written is not None:
            written.put_back()


class _Written(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Keeps what was in parameters that are written to, by whatever way torch sees."""

    def __init__(self, parameters: Iterable[nn.Parameter]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        with part_reads.allowed():
            self._parameters = [(each, each.detach()) for each in parameters]
        with torch._C.DisableTorchFunctionSubclass():
            self._storages = {aliases.storage(data): data for _, data in self._parameters}
        self._before: dict[int | None, tuple[torch.Tensor, torch.Tensor]] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func._schema.is_mutable:
            for given in _pytree.tree_leaves((args, kwargs)):
                held = self._storages.get(aliases.storage(given)) if isinstance(given, torch.Tensor) else None
                if held is not None and aliases.storage(held) not in self._before:
                    with _disable_current_modes():
                        self._before[aliases.storage(held)] = held, held.clone()
        return func(*args, **(kwargs or {}))

    def any(self) -> bool:
        """Whether there are any."""
        with torch._C.DisableTorchFunctionSubclass(), part_reads.allowed():
            moved = any(parameter.data_ptr() != data.data_ptr() for parameter, data in self._parameters)
        return moved or bool(self._before)

    def put_back(self) -> None:
        """Parameters are what they were before."""
        with torch.no_grad(), torch._C.DisableTorchFunctionSubclass(), part_reads.allowed():
            for parameter, data in self._parameters:
                if parameter.data_ptr() != data.data_ptr():
                    parameter.data = data
            for data, before in self._before.values():
                data.copy_(before)
