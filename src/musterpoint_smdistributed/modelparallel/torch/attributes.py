"""Plain attributes of a model's modules: which have changed, what they were, and whether ranks have the same.

A digest of a value says the same on every rank: it goes by what a value is made of, and not by how pickle happens to
write it. Of what it can't look into it takes the type's name.
"""

from __future__ import annotations

import collections
import enum
import hashlib
import random
import types
from typing import Any, Iterable, Mapping, Protocol

import torch
from torch import nn

from . import absent
from .effects import (
    GONE,
    OF_TORCH,
    VALUES,
    Place,
    alike,
    content,
    elements,
    fill,
    is_array,
    objects,
    plain,
    same,
    vars_of,
)
from .scheduler import current


class Asked(Protocol):
    """What a module elsewhere asks; :mod:`.guard` has it. ``quiet``: above 0 the copies here are read and set."""

    quiet: int

    def read(self, module: nn.Module, name: str, value: Any) -> Any: ...

    def write(self, module: nn.Module, name: str, value: Any) -> bool: ...

    def remember_write(self) -> None: ...

    def forbid_delete(self, module: nn.Module, name: str) -> None: ...

    def dictionary(self, module: nn.Module) -> None: ...


def guarded(kind: type[nn.Module], guard: Asked) -> type[nn.Module]:
    """The class of a module that is elsewhere.

    Raises:
        TypeError: ``kind`` isn't made of Python alone.
    """

    def read(self: Any, name: str) -> Any:
        value = kind.__getattribute__(self, name)
        if name in OF_TORCH:
            return value
        if name[:2] == "__":
            if name == "__dict__":
                guard.dictionary(self)
            return value
        if guard.quiet or name not in vars_of(self):
            return value
        return guard.read(self, name, value)

    def write(self: Any, name: str, value: Any) -> None:
        if guard.quiet or current() is None or (name in OF_TORCH and name != "training"):
            kind.__setattr__(self, name, value)
        elif guard.write(self, name, value):
            kind.__setattr__(self, name, value)
            guard.remember_write()

    def delete(self: Any, name: str) -> None:
        if current() is not None and not guard.quiet:
            guard.forbid_delete(self, name)
        kind.__delattr__(self, name)

    inside = {
        "__getattribute__": read,
        "__setattr__": write,
        "__delattr__": delete,
        "__module__": kind.__module__,
        "__qualname__": kind.__qualname__,
        "__doc__": kind.__doc__,
    }
    return type(kind.__name__, (kind,), inside)


_CONFIGURATIONS = frozenset({"PretrainedConfig", "PreTrainedConfig"})
_BOOKKEEPING = frozenset({
    "architectures", "dtype", "torch_dtype", "transformers_version", "_name_or_path", "name_or_path", "_commit_hash",
})  # fmt: skip
"""What transformers notes in a model's configuration when one rank saves or loads it; nothing is computed from it."""
_DEEPEST = 6
_LARGEST = 1 << 16
"""Elements of a tensor whose values are looked at."""


def digest(value: Any) -> bytes:
    """Eight bytes by what the value is made of."""
    into = hashlib.blake2b(digest_size=8)
    _write(value, into, _DEEPEST, set())
    return into.digest()


def _write(value: Any, into: Any, deep: int, seen: set[int]) -> None:
    if isinstance(value, nn.Parameter) or absent.is_absent(value):
        into.update(f"{tuple(value.shape)}".encode())  # its values are no attribute
        return
    into.update(type(value).__name__.encode())
    if isinstance(value, enum.Enum):
        into.update(value.name.encode())
    elif isinstance(value, VALUES):
        into.update(repr(value).encode())
    elif isinstance(value, torch.Tensor):
        _write_tensor(value, into)
    elif isinstance(value, torch.Generator):
        into.update(value.get_state().numpy().tobytes())
    elif isinstance(value, random.Random):
        into.update(repr(value.getstate()).encode())
    elif isinstance(value, (nn.Module, type, types.ModuleType)) or callable(value) or not deep or id(value) in seen:
        into.update(str(getattr(value, "__qualname__", "")).encode())
    elif isinstance(value, (set, frozenset)):
        for each in sorted(digest(one) for one in value):
            into.update(each)
    elif isinstance(value, Mapping):
        seen = seen | {id(value)}
        for key, one in value.items():
            _write(key, into, deep - 1, seen)
            _write(one, into, deep - 1, seen)
    elif isinstance(value, (list, tuple, collections.deque)):
        for one in value:
            _write(one, into, deep - 1, seen | {id(value)})
    elif isinstance(value, bytearray):
        into.update(bytes(value))
    elif is_array(value):
        into.update(value.tobytes())
    elif isinstance(getattr(value, "__dict__", None), dict):
        inside = vars(value)
        if any(base.__name__ in _CONFIGURATIONS for base in type(value).__mro__):
            inside = {name: one for name, one in inside.items() if name not in _BOOKKEEPING}
        _write(inside, into, deep - 1, seen | {id(value)})


def _write_tensor(tensor: torch.Tensor, into: Any) -> None:
    with torch._C.DisableTorchFunctionSubclass(), torch.no_grad():
        into.update(f"{tuple(tensor.shape)} {tensor.dtype} {tensor.requires_grad}".encode())
        dense = tensor.layout is torch.strided and not tensor.is_meta and not tensor.is_quantized
        if dense and tensor.numel() <= _LARGEST:
            values = tensor.detach().resolve_conj().resolve_neg().cpu().contiguous()
            into.update(values.reshape(-1).view(torch.uint8).numpy().tobytes() if values.numel() else b"")


def is_fixed(value: Any) -> bool:
    """Whether nobody can change the value itself."""
    if isinstance(value, (tuple, frozenset)):
        return all(is_fixed(each) for each in value)
    return isinstance(value, (*VALUES, enum.Enum, type, types.ModuleType, types.FunctionType))


class Record:
    """What attributes of some modules are like, to say later which have changed."""

    def __init__(self, modules: Mapping[str, nn.Module]) -> None:
        self._modules = modules
        self._digests = self._now()

    def changed(self) -> list[Place]:
        """The attributes that others have been made or changed since; from now on they count as they are."""
        now = self._now()
        both = self._digests.keys() | now.keys()
        found = [place for place in both if self._digests.get(place) != now.get(place)]
        self._digests = now
        return sorted(found)

    def take(self, places: Iterable[Place]) -> None:
        """These attributes count as they are now."""
        for place in places:
            held = vars_of(self._modules[place.module]) if place.module in self._modules else {}
            self._digests.pop(place, None)
            if place.attribute in held:
                self._digests[place] = digest(held[place.attribute])

    def same_objects(self) -> dict[Place, bytes]:
        """The digest of each attribute."""
        return self._digests

    def _now(self) -> dict[Place, bytes]:
        known: dict[int, bytes] = {}  # modules share one configuration
        found = {}
        for name, module in self._modules.items():
            for attribute, value in plain(vars_of(module)):
                if id(value) not in known:
                    known[id(value)] = digest(value)
                found[Place(name, attribute)] = known[id(value)]
        return found


_TABLES = ("_parameters", "_buffers", "_modules", "_forward_hooks", "_forward_pre_hooks")


class Copies:
    """Modules' attributes as they are now, to put them back: what runs meanwhile leaves nothing behind."""

    def __init__(self, modules: Mapping[str, nn.Module]) -> None:
        held = {name: vars_of(each) for name, each in modules.items()}
        tables = [(name, each[key]) for name, each in held.items() for key in _TABLES if each.get(key)]
        self._dicts = [(name, each, dict(each)) for name, each in (*held.items(), *tables)]
        values = [(Place(name, key), value) for name, each in held.items() for key, value in plain(each)]
        found = {key: (place, each) for place, value in values for key, (each, _) in objects(value).items()}
        self._contents = [(place, each, inside) for place, each in found.values() if (inside := content(each))]
        values += [(place, each) for place, _, inside in self._contents for _, each in elements(inside)]
        self._tensors = [
            (place, each, each.detach().clone())
            for place, each in values
            if isinstance(each, torch.Tensor) and not each.requires_grad and not each.is_meta
        ]

    def restore(self) -> list[Place]:
        """Puts them back; those that had changed."""
        changed = []
        for name, now, before in self._dicts:
            if not alike(now, before):
                keys = [key for key in {**before, **now} if now.get(key, GONE) is not before.get(key, GONE)]
                changed += [Place(name, str(key)) for key in keys if not _equal(now.get(key, GONE), before.get(key))]
                now.clear()
                now.update(before)
        for place, value, inside in self._contents:
            found = content(value)
            if found is None or not same(found, inside):
                changed.append(place)
                fill(value, inside)
        with torch.no_grad():
            for place, tensor, kept in self._tensors:
                if not torch.equal(tensor, kept):
                    changed.append(place)
                    tensor.copy_(kept)
        return changed


def _equal(one: Any, two: Any) -> bool:
    return isinstance(one, VALUES) and type(one) is type(two) and bool(one == two)
