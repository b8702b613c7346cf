"""A container whose modules are on several ranks, as a chain of stages.

Each stage is what one rank computes without a break. It sends on all values that later stages need, so the ranks hand
activations to each other and not through the caller. Stages run the model's own modules, not copies of them.
"""

from __future__ import annotations

import hashlib
from typing import Any, Callable, NamedTuple, Sequence

import torch
from torch import fx, nn
from torch.utils import _pytree

from .tracing import Traced, Untraceable, trace

Values = dict[str, Any]
"""What is known so far, by the names of the graph's nodes."""
Pause = Callable[[], None]
"""Lets something else run, if that is urgent."""


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

        Args:
            pause: is called before each module, and in the backward pass behind each.
        """
        known = {name: values[name] for name in self.takes}

        def value(argument: Any) -> Any:
            """An argument of a node; containers as the model made them, and not fx's own that can't be changed."""
            if isinstance(argument, fx.Node):
                return known[argument.name]
            if isinstance(argument, list):
                return [value(each) for each in argument]
            if isinstance(argument, tuple):
                return tuple(value(each) for each in argument)
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

    def __init__(self, container: nn.Module, traced: Traced, place: Callable[[str], int | None]) -> None:
        self._guards = traced.guards
        self._inputs = [node.name for node in traced.graph.nodes if node.op == "placeholder"]
        self.stages = _cut(container, traced.graph, place)
        self.digest = hashlib.sha256(_text(traced.graph)).hexdigest()[:16]
        """Ranks that traced the same have the same."""

    def holds(self) -> bool:
        """Whether the container's Python would still take the same way."""
        return all(guard.holds() for guard in self._guards)

    def begin(self, tensors: Sequence[torch.Tensor]) -> Values:
        """What the first stage gets: the tensors of the arguments."""
        return dict(zip(self._inputs, tensors))


def chain(
    container: nn.Module,
    key: ChainKey,
    place: Callable[[str], int | None],
    is_leaf: Callable[[str], bool],
    native: Callable[[str], Callable[..., Any]],
) -> Chain:
    """The chain of a container. A container in it that can't be traced is called as a whole, on the rank that has it.

    Args:
        place: the rank that has a module, a parameter or a buffer; None where any does. Names are the whole model's.
        is_leaf, native: as for :func:`.trace`.

    Raises:
        Untraceable: the container itself can't be traced.
    """
    refused: set[str] = set()
    while True:
        try:
            traced = trace(
                container, key.name, key.arguments, key.tensors, lambda name: name in refused or is_leaf(name), native
            )
            break
        except Untraceable as error:
            if error.module == key.name or error.module in refused:
                raise
            refused.add(error.module)
    prefix = f"{key.name}." if key.name else ""
    return Chain(container, traced, lambda name: place(prefix + name))


def _cut(container: nn.Module, graph: fx.Graph, place: Callable[[str], int | None]) -> list[Stage]:
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
    needed: set[str] = set()
    for index in range(len(stages) - 1, -1, -1):
        stage = stages[index]
        stage.is_last = index == len(stages) - 1
        if stage.is_last:
            stage.returns = result.args[0]
            needed = {node.name for node in result.all_input_nodes}
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
    value: Any = container
    for part in str(node.target).split("."):
        value = getattr(value, part)
    return value


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


def _text(graph: fx.Graph) -> bytes:
    return "\n".join(node.format_node() or "" for node in graph.nodes).encode()
