"""Hooks of modules: they run once for each call, on the rank that runs the step function.

A hook keeps what it sees in a closure, a global or a context variable, and the script looks for it there. So a module
that would call others with hooks runs where it is called, whatever it has elsewhere; and that begins on that rank.
Meanwhile the other ranks have no hooks, and the first one has none while it tries how modules can be called together.
"""

from __future__ import annotations

import collections
import contextlib
import functools
import sys
import threading
from typing import Any, Callable, Iterator

import torch
from torch import nn
from torch.utils.hooks import RemovableHandle

from .effects import Given, tables_of_hooks
from .errors import SMPStepError
from .guard import Guard
from .packing import Names
from .replaced import OF_WEIGHTS, ComputedWeights

_APART = ("transformers.", str(__package__))
"""Packages whose hooks keep nothing of a microbatch for another one to see."""


def hooks(module: nn.Module) -> list[Any]:
    """The hooks of a module, but for those that compute its weights."""
    found = [each for table in tables_of_hooks([module]) for each in table.values()]
    return [each for each in found if type(each).__module__ not in OF_WEIGHTS]


class ModuleHooks:
    """The hooks of one model's modules, on one rank."""

    def __init__(self, names: Names, guard: Guard) -> None:
        self._names, self._guard = names, guard
        self._reached: dict[str, set[str]] = {}
        self._tables: dict[str, list[dict[int, Any]]] = {}
        self._registering: set[str] = set()
        """Modules whose forward functions register hooks."""
        self._hooked: set[str] = set()
        """Modules that had hooks on the first rank when the step began."""
        self._taken: list[tuple[dict[int, Any], dict[int, Any]]] = []
        self._handles: list[Any] = []

    def learn(self, registering: set[nn.Module]) -> None:
        """These modules' forward functions register hooks."""
        self._registering = {known[1] for each in registering if (known := self._names.of(each)) is not None}

    def begin(self) -> None:
        """A step begins on this rank."""
        self._tables.clear()
        self.within("", begun=False)

    def within(self, name: str, begun: bool = True) -> bool:
        """Tells whether a call of a module runs or registers hooks of others."""
        if name not in self._reached:
            self._reached[name] = self._names.reached((name,))
        reached = self._reached[name]
        if name not in self._tables:
            self._tables[name] = tables_of_hooks(self._names.modules[each] for each in reached)
        if not (any(self._tables[name]) or self._registering or self._hooked):
            return False
        found = {each: its for each in reached if (its := hooks(self._names.modules[each]))}
        for each, its in found.items():
            if not all(str(getattr(getattr(hook, "func", hook), "__module__", "")).startswith(_APART) for hook in its):
                kind = type(self._names.modules[each]).__name__
                self._guard.run_one_by_one(f"module {each or kind} has hooks", begun)
        inside = (found.keys() | self._hooked) & reached - {name}
        return bool(inside) or not self._registering.isdisjoint(reached)

    def in_call(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        """Tells the same of a call whose arguments may have modules."""
        if self.within(name):
            return True
        if not (self._registering or self._hooked or any(self._tables.get("", ()))):
            return False
        known = (self._names.of(each) for each in Given(args, kwargs).modules)
        return any(self.of_any(each[1]) for each in known if each is not None)

    def of_any(self, name: str) -> bool:
        """Tells whether a call of a module runs any hook."""
        return self.within(name) or bool(hooks(self._names.modules[name]))

    def of_leader(self) -> set[str]:
        """The modules that have hooks, on the rank that runs the step function."""
        modules = self._names.modules
        found = any(tables_of_hooks(modules.values()))  # most models have none
        self._hooked = {name for name, each in modules.items() if hooks(each)} if found else set()
        return self._hooked

    def take_away(self, hooked: set[str]) -> None:
        """Takes hooks away while another rank runs the step function; ``hooked`` have some there."""

        def refuse(name: str, *_: Any) -> None:
            raise SMPStepError(
                f"module {name} has hooks, which run on the rank that runs the step function, and is called on another "
                "one of the pipeline, by a module that isn't seen to refer to it: have it in an attribute there"
            )

        self._hooked = hooked
        modules = self._names.modules
        self._taken = [(each, dict(each)) for each in tables_of_hooks(modules.values())]
        for table, was in self._taken:
            table.clear()
            table.update((key, each) for key, each in was.items() if type(each).__module__ in OF_WEIGHTS)
        self._handles = [modules[name].register_forward_pre_hook(functools.partial(refuse, name)) for name in hooked]

    def put_back(self) -> None:
        """Puts them back. Raises SMPStepError: a forward pass has registered other ones here."""
        taken, handles, self._taken, self._handles = self._taken, self._handles, [], []
        for each in handles:
            each.remove()
        found = any(table for table, _ in taken)
        left = next((name for name, each in self._names.modules.items() if found and hooks(each)), None)
        for table, was in taken:
            table.clear()
            table.update(was)
        if left is not None:
            raise SMPStepError(
                f"module {left}: a forward pass has registered hooks there, on a rank of the pipeline that doesn't run "
                "the step function: do so outside of steps, or in the first step (outputs that transformers captures)"
            )


_WITH_HOOKS = ((nn.Module, "__call__"), (nn.Module, "_call_impl"), (torch.Tensor, "register_hook"))


@contextlib.contextmanager
def past_hooks(model: nn.Module) -> Iterator[tuple[list[Any], set[nn.Module]]]:
    """Runs no hooks inside, since what they do can't be undone.

    Gives the hooks that would have run, and the modules whose forward functions register some.
    """
    exploring = threading.get_ident()
    skipped: list[Any] = []
    registering: set[nn.Module] = set()

    def plain(original: Callable[..., Any]) -> Callable[..., Any]:
        def call(self: Any, *args: Any, **kwargs: Any) -> Any:
            # the script's other threads go on; autograd's, which may compute a checkpoint again, are this one's
            if threading.get_ident() != exploring and torch._C._current_graph_task_id() == -1:
                return original(self, *args, **kwargs)
            if isinstance(self, torch.Tensor):
                skipped.extend(args)
                return RemovableHandle(collections.OrderedDict())
            skipped.extend(hooks(self))
            tables = tables_of_hooks(self.modules())
            before = sum(map(len, tables))
            result = ComputedWeights(self).in_calls(True)(*args, **kwargs)
            if sum(map(len, tables)) != before:
                registering.add(self)
            return result

        return call

    before: list[tuple[Any, str, Any]] = [(owner, name, getattr(owner, name)) for owner, name in _WITH_HOOKS]
    before += [(each, "_backward_hooks", each._backward_hooks) for each in model.parameters() if each._backward_hooks]
    stance = getattr(torch.compiler, "set_stance", None) if "torch._dynamo" in sys.modules else None
    try:
        for owner, name, original in before:
            setattr(owner, name, plain(original) if callable(original) else None)
        with stance("force_eager") if stance else contextlib.nullcontext():  # else compiled without hooks, and kept
            yield skipped, registering
    finally:
        for owner, name, original in before:
            setattr(owner, name, original)
