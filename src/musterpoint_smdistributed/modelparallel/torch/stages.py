"""A container whose modules are on several ranks, as a chain of stages, by a graph of torch.fx.

Each stage is what one rank computes without a break. It sends on all values that later stages need, so the ranks hand
activations to each other and not through the caller. Stages run the model's own modules, not copies of them.

Tracing runs the container's Python once, with stand-ins for tensors. What it can't see would be wrong without a sign:
so whatever depends on more than the tensors' place in the graph is refused, and the container runs as it is.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import operator
import random
import threading
from typing import Any, Callable, Iterator, NamedTuple, Sequence

import torch
from torch import fx, nn
from torch.fx.immutable_collections import immutable_dict
from torch.utils import _pytree

from .effects import Copies, plain, vars_of
from .module_hooks import hooks
from .packing import pack, unpack

Values = dict[str, Any]
"""What is known so far, by the names of the graph's nodes."""
Pause = Callable[[], None]
"""Lets something else run, if that is urgent."""
Place = Callable[[str], "int | None"]
"""The rank that has a module, a parameter or a buffer; None where any does. Names are the whole model's."""
IsLeaf = Callable[[str], bool]
"""Whether a module is called as a whole."""
Native = Callable[[str], Callable[..., Any]]
"""A module's own forward function."""


class ChainKey(NamedTuple):
    """What a chain was made for.

    name: the container.
    training: the training flags of it and all modules in it.
    arguments: its arguments, packed, without the tensors' values.
    tensors: how many of them there are.
    """

    name: str
    training: bytes
    arguments: bytes
    tensors: int


class Stage:
    """Consecutive nodes of a container's graph that one rank runs.

    rank: which.
    takes: the names of the values that it and later stages need.
    passes_on: the names of the values that later stages need.
    returns: the container's result, in the last stage.
    """

    def __init__(self, container: nn.Module, rank: int) -> None:
        self.container, self.rank = container, rank
        self.nodes: list[fx.Node] = []
        self.takes: list[str] = []
        self.passes_on: list[str] = []
        self.returns: Any = None
        self.is_last = False

    def __call__(self, values: Values, pause: Pause | None = None) -> Any:
        """The values that the next stage gets, or the container's result.
        ``pause``: is called before each module, and in the backward pass behind each."""
        known = {name: values[name] for name in self.takes}

        def value(argument: Any) -> Any:
            """An argument of a node; containers as the model made them, and not fx's own that can't be changed."""
            if isinstance(argument, fx.Node):
                return known[argument.name]
            if isinstance(argument, (list, tuple)):
                return (list if isinstance(argument, list) else tuple)(map(value, argument))
            if isinstance(argument, dict):
                return {key: value(each) for key, each in argument.items()}
            if isinstance(argument, slice):
                return slice(value(argument.start), value(argument.stop), value(argument.step))
            return argument

        for node in self.nodes:
            stops = pause if node.op == "call_module" else None
            if stops is not None:
                stops()
            result = known[node.name] = _run(self.container, node, value(node.args), value(node.kwargs))
            if stops is not None:
                _pausing(result, stops)
        if self.is_last:
            return value(self.returns)
        return {name: known[name] for name in self.passes_on}


class Chain:
    """The stages of a container for one kind of call."""

    def __init__(self, container: nn.Module, graph: fx.Graph, guards: list[Guard], place: Place) -> None:
        self._guards = guards
        self._inputs = [node.name for node in graph.nodes if node.op == "placeholder"]
        self.stages = _cut(container, graph, place)
        text = "\n".join(node.format_node() or "" for node in graph.nodes)
        self.digest = hashlib.sha256(text.encode()).hexdigest()[:16]
        """Ranks that traced the same have the same."""

    def holds(self) -> bool:
        """Whether the container's Python would still take the same way."""
        return all(guard.holds() for guard in self._guards)

    def begin(self, tensors: Sequence[torch.Tensor]) -> Values:
        """What the first stage gets: the tensors of the arguments."""
        return dict(zip(self._inputs, tensors))


def chain(container: nn.Module, key: ChainKey, place: Place, is_leaf: IsLeaf, native: Native) -> Chain:
    """The chain of a container. A container in it that can't be traced is called as a whole, on the rank that has it.
    Raises Untraceable: the container itself can't be traced."""
    refused: set[str] = set()
    while True:
        try:
            graph, guards = trace(container, key, lambda name: name in refused or is_leaf(name), native)
            break
        except Untraceable as error:
            if error.module == key.name or error.module in refused:
                raise
            refused.add(error.module)
    prefix = f"{key.name}." if key.name else ""
    return Chain(container, graph, guards, lambda name: place(prefix + name))


def _cut(container: nn.Module, graph: fx.Graph, place: Place) -> list[Stage]:
    """A new stage begins where a node needs another rank than the one before; nodes that don't care stay."""
    stages: list[Stage] = []
    waiting: list[fx.Node] = []
    for node in graph.nodes:
        if node.op in ("placeholder", "output"):
            continue
        rank = place(str(node.target)) if node.op in ("call_module", "get_attr") else None
        if rank is None and not stages:
            waiting.append(node)
            continue
        if rank is not None and (not stages or stages[-1].rank != rank):
            stages.append(Stage(container, rank))
        stages[-1].nodes += [*waiting, node]
        waiting = []
    if not stages:
        raise Untraceable("", "nothing in it is on any rank")
    result = next(node for node in graph.nodes if node.op == "output")
    stages[-1].is_last, stages[-1].returns = True, result.args[0]
    needed = {node.name for node in result.all_input_nodes}
    for stage in reversed(stages):
        stage.passes_on = sorted(needed)
        needed |= {used.name for node in stage.nodes for used in node.all_input_nodes}
        needed -= {node.name for node in stage.nodes}
        stage.takes = sorted(needed)
    return stages


def _run(container: nn.Module, node: fx.Node, args: Any, kwargs: Any) -> Any:
    if node.op == "call_module":
        return _module(container, str(node.target))(*args, **kwargs)
    if node.op == "call_function":
        assert callable(node.target)
        return node.target(*args, **kwargs)
    if node.op == "call_method":
        return getattr(args[0], str(node.target))(*args[1:], **kwargs)
    return operator.attrgetter(str(node.target))(container)


def _module(container: nn.Module, path: str) -> Any:
    """As ``get_submodule``, which reads many attributes on its way, and the guard looks at each."""
    found: Any = container
    for part in path.split("."):
        found = found._modules[part]
    return found


def _pausing(result: Any, pause: Pause) -> None:
    """Has the backward pass call ``pause`` where it enters the module that returned this."""
    for each in _pytree.tree_leaves(result):
        if isinstance(each, torch.Tensor) and each.grad_fn is not None:
            each.grad_fn.register_prehook(lambda _gradients: pause())


# ---- tracing

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


def trace(container: nn.Module, key: ChainKey, is_leaf: IsLeaf, native: Native) -> tuple[fx.Graph, list[Guard]]:
    """The graph of a container, and what must be as it was.

    In the graph call_module nodes name modules below the container; placeholders are ``input_0``, ``input_1``, … for
    the tensors of the arguments.
    """
    name, tracer = key.name, _Tracer(key, is_leaf, native)
    noise = torch.get_rng_state(), random.getstate()
    attributes = Copies(dict(container.named_modules(prefix=name)))
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
    return graph, guards


class _Tracer(fx.Tracer):
    proxy_buffer_attributes = True

    def __init__(self, key: ChainKey, is_leaf: IsLeaf, native: Native) -> None:
        super().__init__()
        self._key, self._is_leaf, self._native = key, is_leaf, native
        self._mode = _mode()
        self.inside = [key.name]
        self.opened: list[tuple[nn.Module, dict[str, Any]]] = []

    def create_args_for_root(self, root_fn: Any, is_module: bool, concrete_args: Any = None) -> tuple[Any, list[Any]]:
        count = self._key.tensors
        inputs: list[Any] = [self.create_proxy("placeholder", f"input_{index}", (), {}) for index in range(count)]
        self._open(self.root)

        def run() -> Any:
            args, kwargs = unpack(self._key.arguments, inputs, None)
            return self._native(self._key.name)(*args, **kwargs)

        return run, []

    def call_module(self, m: nn.Module, forward: Any, args: Any, kwargs: Any) -> Any:
        path = self.path_of_module(m)
        if any(hooks(each) for each in m.modules()):
            raise Untraceable(self.inside[-1], "modules in it have hooks")  # which run on the rank that calls them
        full = f"{self._key.name}.{path}" if self._key.name else path
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
