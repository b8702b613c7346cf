"""Compares a chain of stages with the container it was made of, once, while one rank still has all of it."""

from __future__ import annotations

import contextlib
import random
from typing import Any, Callable, Iterator, Sequence

import torch
from torch import nn
from torch.utils import _pytree

from .packing import pack, unpack
from .stages import Chain

_PLAIN = (type(None), bool, int, float, str)


def differs(
    container: nn.Module, native: Callable[..., Any], chain: Chain, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> str | None:
    """What the chain gets wrong for these arguments, or None: its result, or any gradient of inputs and parameters.

    The model is afterwards as it was.
    """
    with untouched(container):
        own = _outcome(container, native, args, kwargs)
    with untouched(container):
        try:
            chained = _outcome(container, lambda *args, **kwargs: _by_stages(chain, args, kwargs), args, kwargs)
        except Exception as error:  # whatever the traced code fails with here, it would fail with later
            return f"{type(error).__name__}: {error}"
    return own.compare(chained)


class _Outcome:
    """A result, taken apart, and the gradients for some gradient of it."""

    def __init__(self, value: Any, gradients: Sequence[torch.Tensor | None]) -> None:
        self.leaves, self.structure = _pytree.tree_flatten(value)
        self.gradients = gradients

    def compare(self, other: _Outcome) -> str | None:
        if self.structure != other.structure:
            return f"it returns {other.structure} and not {self.structure}"
        for one, two in zip(self.leaves, other.leaves):
            if not _alike(one, two):
                return "its result is another one"
        for gradient, its in zip(self.gradients, other.gradients):
            if (gradient is None) != (its is None) or (gradient is not None and not _alike(gradient, its)):
                return "its gradients are others"
        return None


def _outcome(container: nn.Module, function: Callable[..., Any], args: Any, kwargs: Any) -> _Outcome:
    packed = pack((args, kwargs), None, "an argument")
    inputs = [tensor.detach().clone().requires_grad_(tensor.requires_grad) for tensor in packed.tensors]
    # a checkpoint around the container keeps what is saved in its own way, and would run it again for these gradients
    with torch.enable_grad(), torch.autograd.graph.saved_tensors_hooks(_itself, _itself):
        # as results of something: a module may change its input in place
        args, kwargs = unpack(packed.data, [tensor.clone() for tensor in inputs], None)
        value = function(*args, **kwargs)
        results = [leaf for leaf in _pytree.tree_leaves(value) if isinstance(leaf, torch.Tensor) and leaf.requires_grad]
        wanted = [tensor for tensor in (*inputs, *container.parameters()) if tensor.requires_grad]
        generator = torch.Generator().manual_seed(1)
        seeds = [torch.rand(leaf.shape, generator=generator).to(leaf) for leaf in results]
        gradients: Sequence[torch.Tensor | None] = ()
        if results and wanted:
            gradients = torch.autograd.grad(results, wanted, seeds, allow_unused=True)
    return _Outcome(_pytree.tree_map_only(torch.Tensor, torch.Tensor.detach, value), gradients)


def _itself(tensor: torch.Tensor) -> torch.Tensor:
    return tensor


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
        return not isinstance(one, _PLAIN) or bool(one == two)
    if one.shape != two.shape or one.dtype != two.dtype or one.requires_grad != two.requires_grad:
        return False
    if not (one.is_floating_point() or one.is_complex()):
        return torch.equal(one, two)
    tolerance = 100 * torch.finfo(one.dtype).eps
    scale = one.abs().max().item() if one.numel() else 0.0
    return torch.allclose(one, two, rtol=tolerance, atol=tolerance * max(scale, 1e-30), equal_nan=True)


@contextlib.contextmanager
def untouched(module: nn.Module) -> Iterator[None]:
    """What runs inside changes no buffer, no random numbers and no plain attribute of any module."""
    devices = [torch.cuda.current_device()] if torch.cuda.is_available() else []
    buffers = [(buffer, buffer.detach().clone()) for buffer in module.buffers()]
    plain = [
        (each, {name: value for name, value in vars(each).items() if isinstance(value, _PLAIN)})
        for each in module.modules()
    ]
    dice = random.getstate()
    try:
        with torch.random.fork_rng(devices):
            yield
    finally:
        random.setstate(dice)
        with torch.no_grad():
            for buffer, before in buffers:
                buffer.copy_(before)
        for each, attributes in plain:
            vars(each).update(attributes)
