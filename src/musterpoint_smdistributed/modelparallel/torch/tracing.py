"""The order in which a container calls its modules, as a graph of torch.fx.

Tracing runs the container's Python once, with stand-ins for tensors. What it can't see would be wrong without a sign:
so whatever depends on more than the tensors' place in the graph is refused, and the container runs as it is.
"""

from __future__ import annotations

import contextlib
import dataclasses
import random
import threading
from typing import Any, Callable, Iterator, NamedTuple

import torch
from torch import fx, nn
from torch.fx.immutable_collections import immutable_dict
from torch.utils import _pytree

from .effects import Copies, plain, vars_of
from .packing import pack, unpack

Constant = (type(None), bool, int, float, str, torch.dtype, torch.device)
"""Types of arguments that a graph is made for, one by one."""


class Untraceable(Exception):
    """The module can't be traced; ``module`` is the one in which it was seen."""

    def __init__(self, module: str, why: str) -> None:
        super().__init__(f"{module or 'the model'}: {why}")
        self.module = module


class Guard(NamedTuple):
    """A value of a traced module that its Python may have decided by; a graph is good as long as it is the same."""

    module: nn.Module
    attributes: dict[str, Any]

    def holds(self) -> bool:
        held = object.__getattribute__(self.module, "__dict__")  # past the guard, which takes longer
        return all(held.get(name) == value for name, value in self.attributes.items())


class Traced(NamedTuple):
    """A container's graph.

    graph: call_module nodes name modules below the container; placeholders are ``input_0``, ``input_1``, … for the
        tensors of the arguments.
    guards: what must be as it was.
    """

    graph: fx.Graph
    guards: list[Guard]


def trace(
    container: nn.Module,
    name: str,
    arguments: bytes,
    count: int,
    is_leaf: Callable[[str], bool],
    native: Callable[[str], Callable[..., Any]],
) -> Traced:
    """The graph of a container.

    Args:
        name: its qualified name; so that ``is_leaf`` and ``native`` get names in the whole model.
        arguments: a call's arguments, packed; the same values but for the tensors.
        count: how many tensors are in them.
        is_leaf: whether a module below is called as a whole.
        native: a module's own forward function.

    Raises:
        Untraceable: there is something that a graph can't say.
    """
    tracer = _Tracer(name, arguments, count, is_leaf, native)
    noise = torch.get_rng_state(), random.getstate()
    inner = dict(container.named_modules(prefix=name))
    attributes = Copies(inner)
    try:
        with _refusing():
            graph = tracer.trace(container)
    except Untraceable:
        raise
    except Exception as error:  # any code of the model's may fail in any way on stand-ins
        raise Untraceable(tracer.inside[-1], f"{type(error).__name__}: {error}") from error
    finally:
        changed = attributes.changed()
        attributes.put_back()
    if changed:
        raise Untraceable(name, f"it changes {changed}")
    if not torch.equal(noise[0], torch.get_rng_state()) or noise[1] != random.getstate():
        torch.set_rng_state(noise[0])
        random.setstate(noise[1])
        raise Untraceable(name, "it uses random numbers")
    guards = [
        Guard(module, {key: value for key, value in before.items() if _is_plain(value)})
        for module, before in tracer.opened
    ]
    return Traced(graph, guards)


class _Tracer(fx.Tracer):
    proxy_buffer_attributes = True

    def __init__(
        self,
        name: str,
        arguments: bytes,
        count: int,
        is_leaf: Callable[[str], bool],
        native: Callable[[str], Callable[..., Any]],
    ) -> None:
        super().__init__()
        self._name, self._arguments, self._count = name, arguments, count
        self._is_leaf, self._native = is_leaf, native
        self._mode = _mode()
        self.inside = [name]
        self.opened: list[tuple[nn.Module, dict[str, Any]]] = []

    def create_args_for_root(self, root_fn: Any, is_module: bool, concrete_args: Any = None) -> tuple[Any, list[Any]]:
        inputs: list[Any] = [self.create_proxy("placeholder", f"input_{index}", (), {}) for index in range(self._count)]
        self._open(self.root)

        def run() -> Any:
            args, kwargs = unpack(self._arguments, inputs, None)
            return self._native(self._name)(*args, **kwargs)

        return run, []

    def call_module(self, m: nn.Module, forward: Any, args: Any, kwargs: Any) -> Any:
        path = self.path_of_module(m)
        full = f"{self._name}.{path}" if self._name else path
        if self._is_leaf(full):
            return self.create_proxy("call_module", path, args, kwargs)
        self.inside.append(full)
        self._open(m)
        result = self._native(full)(*args, **kwargs)
        self.inside.pop()
        return result

    def create_arg(self, a: Any) -> Any:
        if isinstance(a, torch.Tensor) and not isinstance(a, nn.Parameter) and not self._is_of_model(a):
            raise Untraceable(self.inside[-1], "it makes a tensor that doesn't depend on its arguments")
        if isinstance(a, dict) and type(a) not in (dict, immutable_dict):
            return self.create_node(
                "call_function", mapping, (type(a), tuple(a), self.create_arg(tuple(a.values()))), {}
            )
        return super().create_arg(a)

    def create_node(self, *args: Any, **kwargs: Any) -> Any:
        if _mode() != self._mode:
            raise Untraceable(self.inside[-1], "it switches gradients, autocast or what is saved for them")
        return super().create_node(*args, **kwargs)

    def _open(self, module: nn.Module) -> None:
        hooks = (module._forward_hooks, module._forward_pre_hooks, module._backward_hooks, module._backward_pre_hooks)
        if any(hooks):
            raise Untraceable(self.inside[-1], "it has hooks")
        self.opened.append((module, _attributes(module)))

    def _is_of_model(self, tensor: torch.Tensor) -> bool:
        return tensor in self.tensor_attrs or any(tensor is buffer for buffer in self.root.buffers())


def mapping(kind: type, keys: tuple[str, ...], values: tuple[Any, ...]) -> Any:
    """A dict of a kind of its own, as fx would not make it again; for example a dataclass of transformers."""
    items = dict(zip(keys, values))
    return kind(**items) if dataclasses.is_dataclass(kind) else kind(items)


_is_grad_enabled = torch.is_grad_enabled


def _mode() -> tuple[Any, ...]:
    """What a graph's nodes don't say: all of them must have been made under the same."""
    return (
        _is_grad_enabled(),
        torch.is_inference_mode_enabled(),
        torch._C._is_any_autocast_enabled(),
        torch._C._autograd._top_saved_tensors_default_hooks(True),
    )


@contextlib.contextmanager
def _refusing() -> Iterator[None]:
    """Has functions fail that tracing would look through, or that decide by what changes from call to call."""

    tracing = threading.get_ident()  # the script's other threads go on

    def refuse(what: str, otherwise: Callable[..., Any]) -> Callable[..., Any]:
        def fail(*args: Any, **kwargs: Any) -> Any:
            if threading.get_ident() != tracing:
                return otherwise(*args, **kwargs)
            raise RuntimeError(what)

        return fail

    function: Any = torch.autograd.Function
    before = function.__dict__["apply"], torch.is_grad_enabled, torch.is_autocast_enabled
    # fx would record the forward pass of such a function and lose its backward pass
    function.apply = classmethod(refuse("it has an autograd.Function of its own", before[0].__func__))
    torch.is_grad_enabled = refuse("it asks whether gradients are recorded", before[1])
    torch.is_autocast_enabled = refuse("it asks for autocast", before[2])
    try:
        yield
    finally:
        function.apply, torch.is_grad_enabled, torch.is_autocast_enabled = before


def _attributes(module: nn.Module) -> dict[str, Any]:
    """What a module's Python may decide by; lists and dicts as copies."""
    held = plain(vars_of(module))
    return {name: type(value)(value) if type(value) in (list, dict, set) else value for name, value in held}


def _is_plain(value: Any) -> bool:
    if isinstance(value, (list, tuple)):
        return all(isinstance(part, Constant) for part in value)
    return isinstance(value, Constant)


def signature(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[bytes, list[torch.Tensor]] | None:
    """A call's arguments as a graph is made for them: packed, and their tensors. None if they are too special."""
    leaves = _pytree.tree_leaves((args, kwargs))
    if not all(isinstance(leaf, (torch.Tensor, *Constant)) for leaf in leaves):
        return None
    packed = pack((args, kwargs), None, "an argument")
    return packed.data, packed.tensors
