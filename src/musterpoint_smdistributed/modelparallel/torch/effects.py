"""Changes that a call makes beside its output: in objects that it is given, and in attributes of modules.

The rank that runs a call looks before and after. What has changed travels back with the output, through the same node
of autograd, and is changed so on the rank that has called. An object that both have stays the same object there.
"""

from __future__ import annotations

import collections
import copyreg
import enum
import functools
import itertools
import operator
import random
import types
from typing import Any, Collection, Iterable, Iterator, Mapping, NamedTuple, Sequence

import torch
from torch import nn
from torch.utils import _pytree

from . import absent
from .connection import once
from .errors import SMPStepError

VALUES = (type(None), bool, int, float, complex, str, bytes, torch.dtype, torch.device, torch.Size)
_FIXED = (*VALUES, torch.Tensor, nn.Module, type, enum.Enum, types.ModuleType, types.FunctionType,
          types.BuiltinFunctionType, types.MethodType, functools.partial)  # fmt: skip
_IN_SETS = (*VALUES, tuple, torch.Tensor)
_FOREIGN = frozenset({"torch", "logging", "threading", "_thread", "io", "_io", "socket", "weakref", "functools"})
"""Packages whose objects a forward pass doesn't change."""
_DEEPEST = 8
_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
"""A module's dicts of hooks; those of all modules are in torch's own module, with ``_global`` before."""
_OF_HOOKS = ("_forward_hooks_with_kwargs", "_forward_hooks_always_called", "_forward_pre_hooks_with_kwargs")
"""Torch's notes of how hooks are called."""
OF_TORCH = frozenset(vars(nn.Module())) - {"_parameters", "_buffers", "_modules"} | {
    "forward", "_parameters", "_buffers", "_modules", "_compiled_call_impl", "parametrizations",
    "__deepcopy__", "__reduce_ex__", "__prepare_scriptable__",
}  # fmt: skip
"""What torch itself keeps in a module's ``__dict__``."""
GONE: Any = object()
"""In the place of an attribute that isn't there."""
Step = tuple[bool, Any]
"""From an object to one in it: by an attribute (else by an index or a key), and which."""
Ways = dict[int, tuple[Any, tuple[Step, ...]]]
"""Objects that may be changed, by their ids, each with the way to it."""


class Place(NamedTuple):
    """An attribute of a module, by the module's name."""

    module: str
    attribute: str

    def __str__(self) -> str:
        return f"{self.module}.{self.attribute}" if self.module else self.attribute


class Content(NamedTuple):
    """An object that may be changed, one level deep.

    items: of a container, or the state of a generator or an array.
    attributes: by their names; those in slots as well.
    """

    items: Any
    attributes: dict[str, Any]


def is_array(value: Any) -> bool:
    """Whether it is numpy's, or alike."""
    return hasattr(value, "__array__") and hasattr(value, "tobytes")


def content(value: Any) -> Content | None:
    """What is in an object now; None: nothing that can be changed, or it is a tensor or a module."""
    items: Any = None
    if isinstance(value, dict):
        items = dict(dict.items(value))
    elif isinstance(value, (list, collections.deque)):
        items = list(value)
    elif isinstance(value, set):
        items = set(value)
    elif isinstance(value, (_FIXED, tuple, frozenset)):
        return None
    elif isinstance(value, bytearray):
        return Content(bytes(value), {})
    elif isinstance(value, random.Random):
        return Content(value.getstate(), {})
    elif isinstance(value, torch.Generator):
        return Content(value.get_state().numpy().tobytes(), {})
    elif is_array(value):
        return Content(value.tobytes(), {})
    elif type(value).__module__.partition(".")[0] in _FOREIGN:
        return None
    held, slots = getattr(value, "__dict__", None), copyreg._slotnames(type(value))  # type: ignore[attr-defined]
    if items is None and not isinstance(held, dict) and not slots:
        return None
    attributes = dict(held) if isinstance(held, dict) else {}
    attributes.update((name, getattr(value, name)) for name in slots if hasattr(value, name))
    return Content(items, attributes)


def fill(value: Any, new: Content) -> None:
    """Has an object contain what another one of its type contains."""
    items: Any = new.items
    if isinstance(value, dict):
        kind: Any = collections.OrderedDict if isinstance(value, collections.OrderedDict) else dict
        kind.clear(value)
        for key, each in items.items():
            kind.__setitem__(value, key, each)
    elif isinstance(value, (list, bytearray)):
        value[:] = items
    elif isinstance(value, collections.deque):
        value.clear()
        value.extend(items)
    elif isinstance(value, set):
        set.clear(value)
        set.update(value, items)
    elif isinstance(value, random.Random):
        value.setstate(items)
        return
    elif isinstance(value, torch.Generator):
        value.set_state(torch.frombuffer(bytearray(items), dtype=torch.uint8))
    elif is_array(value):
        value.data.cast("B")[:] = items
    for name in [each for each in getattr(value, "__dict__", ()) if each not in new.attributes]:
        object.__delattr__(value, name)
    for name, each in new.attributes.items():
        object.__setattr__(value, name, each)


def poured(old: Any, new: Any) -> Any:
    """What is to stand in the place of ``old``: the same object, with what is in ``new``, where it can be one."""
    into = content(old) if type(old) is type(new) and old is not new else None
    found = content(new) if into is not None else None
    if into is None or found is None:
        return new
    items = found.items
    if isinstance(items, dict) and isinstance(into.items, dict):
        items = {key: poured(into.items.get(key), each) for key, each in items.items()}
    elif isinstance(items, list) and isinstance(into.items, list):
        items = [poured(one, two) for one, two in zip(into.items, items)] + items[len(into.items) :]
    attributes = {name: poured(into.attributes.get(name), each) for name, each in found.attributes.items()}
    fill(old, Content(items, attributes))
    return old


def alike(one: Any, two: Any) -> bool:
    """Whether two containers have the same objects."""
    if isinstance(one, (dict, list)) and not (len(one) == len(two) and all(map(operator.is_, one, two))):
        return False
    if isinstance(one, dict):
        return all(map(operator.is_, one.values(), two.values()))
    return isinstance(one, list) or bool(one == two)


def objects(value: Any) -> Ways:
    """The objects in a value that may be changed, by their ids, each with the way to it; and modules."""
    found: Ways = {}
    if not isinstance(value, VALUES):
        _find(value, found, ())
    return found


def _find(value: Any, found: Ways, way: tuple[Step, ...]) -> None:
    if isinstance(value, (VALUES, torch.Tensor)) or len(way) > _DEEPEST or id(value) in found:
        return
    if isinstance(value, tuple):
        for index, each in enumerate(value):
            _find(each, found, (*way, (False, index)))
    elif isinstance(value, nn.Module):
        found[id(value)] = value, way
    elif (inside := content(value)) is not None:
        found[id(value)] = value, way
        for step, each in elements(inside):
            _find(each, found, (*way, step))


def in_graph(value: Any, since: int = 0) -> bool:
    """Whether gradients go through a value, or what is in it. ``since``: to a node of that number or a later one."""
    if isinstance(value, torch.Tensor):
        return value.grad_fn is not None and value.grad_fn._sequence_nr() >= since
    if isinstance(value, tuple):
        return any(in_graph(each, since) for each in value)
    if isinstance(value, VALUES):
        return False
    inside = (content(held) for held, _ in objects(value).values())
    leaves = (each for found in inside if found is not None for _, each in elements(found))
    return any(in_graph(each, since) for each in _pytree.tree_leaves(list(leaves)) if isinstance(each, torch.Tensor))


def elements(inside: Content) -> Iterator[tuple[Step, Any]]:
    """What is in an object, each with the way to it; what has no name on another rank is left out."""
    if isinstance(inside.items, dict):
        yield from (((False, key), each) for key, each in inside.items.items() if isinstance(key, (*VALUES, tuple)))
    elif isinstance(inside.items, list):
        yield from (((False, index), each) for index, each in enumerate(inside.items))
    yield from (((True, name), each) for name, each in inside.attributes.items())


def at(value: Any, way: Iterable[Step]) -> Any:
    """The object that is there."""
    for is_attribute, key in way:
        value = object.__getattribute__(value, key) if is_attribute else value[key]
    return value


class Given:
    """Objects among a call's arguments that it may change, and what is in them before, on the rank that calls."""

    def __init__(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        found: Ways = {}
        for each in (*args, *kwargs.values()):
            _find(each, found, ())
        self.objects = [each for each, _ in found.values()]
        self.modules = [each for each, _ in found.values() if isinstance(each, nn.Module)]
        self._before = [content(each) for each in self.objects]

    def find(self, index: int, step: Step | None) -> Any:
        """The object of that number, or what was there in it."""
        before = self._before[index]
        if step is None or before is None:
            return self.objects[index]
        return (before.attributes if step[0] else before.items)[step[1]]


class Changed(NamedTuple):
    """What is in an object after a call; ``place``: the attribute it is in, or an argument."""

    owner: Any
    inside: Content
    place: Place | str


class Attribute(NamedTuple):
    """What a module has in an attribute after a call.

    is_there: False where the call has removed it; None where it can't be sent.
    buffer: of a buffer, whether it is in the state. ``value`` is None where it is to be fetched.
    once: of a call's caller, which has changed an object that modules of several ranks have.
    """

    place: Place
    value: Any
    is_there: bool | None = True
    buffer: bool | None = None
    shape: tuple[int, ...] = ()
    dtype: torch.dtype | None = None
    once: bool = False


class Known(NamedTuple):
    """Stands in a message for an object that the rank that called has: among the call's arguments (``given``), in an
    attribute (``held``), among its tensors (``sent``), or as an effect of an earlier call (``left``)."""

    kind: str
    of: Any
    step: Any = None


def plain(held: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """A module's own attributes: no parameters, buffers and modules, and nothing of torch's."""
    for name, value in held.items():
        if name in OF_TORCH or name[:5] == "_smp_" or isinstance(value, nn.Module):
            continue
        if not (isinstance(value, torch.Tensor) and isinstance(value, nn.Parameter)):  # torch's own check is slow
            yield name, value


def vars_of(module: nn.Module) -> dict[str, Any]:
    """Past the guard of modules elsewhere."""
    found: dict[str, Any] = object.__getattribute__(module, "__dict__")
    return found


def tables_of_hooks(modules: Iterable[nn.Module], names: Sequence[str] = _HOOKS) -> list[dict[int, Any]]:
    """The dicts of hooks of these modules, and of all modules."""
    found = [vars(nn.modules.module).get(f"_global{name}") for name in names]
    found += [held.get(name) for held in map(vars_of, modules) for name in names]
    return [each for each in found if each is not None]


class Look:
    """Objects and modules as they are before a call.

    ``modules``: by their names. ``given``: the call's objects. ``ways``: the objects in attributes of these modules;
    see :func:`ways_to`.
    """

    def __init__(
        self, modules: Mapping[str, nn.Module], given: Sequence[Any], ways: Mapping[int, tuple[Any, Any]]
    ) -> None:
        self._held = [(name, held := vars_of(each), dict(held)) for name, each in modules.items()]
        self._tables = [
            (name, key, held, dict(held[key]))
            for name, held, _ in self._held
            for key in ("_parameters", "_buffers", "_modules")
            if key in held
        ]
        self._given = [(each, inside, n) for n, each in enumerate(given) if (inside := content(each)) is not None]
        self._ways = [(each, way, inside) for each, way in ways.values() if (inside := content(each)) is not None]
        self.known: dict[int, Known] = {id(each): Known("given", index) for index, each in enumerate(given)}
        for each, way, _ in self._ways:
            self.known.setdefault(id(each), Known("held", *way))

    def found(self, skipped: Collection[Place] = (), strictly: bool = False) -> list[Changed | Attribute]:
        """The changes since; raises SMPStepError where something has changed that can't be so on another rank.

        Args:
            skipped: attributes of which nobody is to hear.
            strictly: plain values that are equal, and not the same object, are changes, too.
        """
        changes: list[Changed | Attribute] = []
        for value, before, index in self._given:
            if (now := _other(value, before)) is not None:
                if isinstance(value, set) and not all(isinstance(each, _IN_SETS) for each in now.items):
                    raise SMPStepError("an argument is a set of objects, and others would come back. Pass a list")
                changes.append(Changed(value, now, "an argument"))
                for step, each in elements(before):
                    if not isinstance(each, VALUES):
                        self.known.setdefault(id(each), Known("given", index, step))
        for value, (place, _), before in self._ways:
            if (now := _other(value, before)) is not None and place not in skipped:
                changes.append(Changed(value, now, place))
        for name, held, was in self._held:
            if not alike(was, held):
                old, new = dict(plain(was)), dict(plain(held))
                for key in [*new, *(each for each in old if each not in new)]:
                    place, one, two = Place(name, key), old.get(key, GONE), new.get(key, GONE)
                    equal = not strictly and isinstance(one, VALUES) and type(one) is type(two) and one == two
                    if one is not two and not equal and place not in skipped:
                        changes.append(Attribute(place, None if two is GONE else two, two is not GONE))
        for name, table, held, kept in self._tables:
            if not alike(kept, held[table]):
                changes += _of_table(name, table, held, kept)
        return changes

    def changed(self, skipped: Collection[Place] = (), strictly: bool = True) -> str:
        """What has changed since, for people; empty: nothing."""
        try:
            found = self.found(skipped, strictly)
        except SMPStepError as error:
            return str(error)
        return f"the attribute {found[0].place}" if found else ""


class Copies(Look):
    """The same of attributes, to put them back: what runs meanwhile leaves nothing behind."""

    def __init__(self, modules: Mapping[str, nn.Module]) -> None:
        super().__init__(modules, (), ways_to(modules))
        self._hooks = [(each, dict(each)) for each in tables_of_hooks(modules.values(), _HOOKS + _OF_HOOKS)]
        values = [value for _, held, _ in self._held for _, value in plain(held)]
        values += [each for _, _, inside in self._ways for _, each in elements(inside)]
        self._tensors = [
            (found := once(each.detach()), found.clone())
            for each in values
            if isinstance(each, torch.Tensor) and not (each.requires_grad or each.is_meta or absent.is_absent(each))
        ]

    def changed(self, skipped: Collection[Place] = (), strictly: bool = False) -> str:
        if any(not alike(was, held) for held, was in self._hooks):
            return "hooks"
        for name, table, held, was in self._tables:
            for key in {**was, **held[table]}:
                if held[table].get(key) is not was.get(key):
                    return str(Place(name, key))
        tensors = any(not torch.equal(tensor, kept) for tensor, kept in self._tensors)
        return super().changed(skipped, strictly) or ("a tensor in an attribute" if tensors else "")

    def put_back(self) -> None:
        """Everything is as it was."""
        own = ((held, was) for _, held, was in self._held)
        tables = ((held[key], was) for _, key, held, was in self._tables)  # when these are in their modules again
        for now, was in itertools.chain(own, self._hooks, tables):
            if not alike(was, now):
                now.clear()
                now.update(was)
        for value, _, inside in self._ways:
            if _other(value, inside) is not None:
                fill(value, inside)
        with torch.no_grad():
            for tensor, kept in self._tensors:
                if not torch.equal(tensor, kept):
                    tensor.copy_(kept)


def ways_to(modules: Mapping[str, nn.Module]) -> dict[int, tuple[Any, Any]]:
    """The objects in attributes, by their ids, each with its attribute and the way from there."""
    ways: dict[int, tuple[Any, Any]] = {}
    for name, each in modules.items():
        for attribute, value in plain(vars_of(each)):
            for found, way in objects(value).values():
                ways.setdefault(id(found), (found, (Place(name, attribute), way)))
    return ways


def _other(value: Any, before: Content) -> Content | None:
    """What is in an object now; None: the same as before."""
    now = content(value)
    return None if now is None or all(map(alike, before, now)) else now


def _of_table(name: str, table: str, held: Mapping[str, Any], before: Mapping[str, Any]) -> Iterator[Attribute]:
    """Changed parameters, buffers or modules of a module."""
    for key in [*held[table], *(each for each in before if each not in held[table])]:
        place, value = Place(name, key), held[table].get(key, GONE)
        if value is before.get(key, GONE):
            continue
        if table != "_buffers":
            kind = "module" if table == "_modules" else "parameter"
            raise SMPStepError(
                f"{place}: a forward pass has put another {kind} there, and the other ranks of the pipeline keep the "
                "one before. Make it before smp.DistributedModel"
            )
        persistent = key not in held["_non_persistent_buffers_set"]
        if value is GONE or value is None:
            yield Attribute(place, None, value is not GONE, persistent)
        else:
            sent = value if value.grad_fn is not None else None
            yield Attribute(place, sent, True, persistent, tuple(value.shape), value.dtype)
