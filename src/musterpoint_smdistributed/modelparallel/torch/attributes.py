"""Plain attributes of a model's modules: which have changed, what they were, and whether ranks have the same.

A digest of a value says the same on every rank: it goes by what a value is made of, and not by how pickle happens to
write it. Of what it can't look into it takes the type's name.
"""

from __future__ import annotations

import collections
import enum
import hashlib
import itertools
import random
import types
from typing import Any, Mapping

import torch
from torch import nn

from . import absent
from .effects import OF_TORCH, VALUES, Place, is_array, plain, vars_of
from .scheduler import current


def guarded(kind: type[nn.Module], guard: Any) -> type[nn.Module]:
    """The class of a module that is elsewhere, which asks the :class:`.Guard`.
    Raises TypeError: ``kind`` isn't made of Python alone."""

    def read(self: Any, name: str) -> Any:
        value = kind.__getattribute__(self, name)
        if name == "__dict__":
            guard.dictionary(self)
        elif name not in OF_TORCH and name[:2] != "__" and not guard.quiet and name in vars_of(self):
            return guard.read(self, name, value)
        return value

    def write(self: Any, name: str, value: Any) -> None:
        if guard.quiet or current() is None or (name in OF_TORCH and name != "training"):
            kind.__setattr__(self, name, value)
        elif guard.write(self, name, value):
            kind.__setattr__(self, name, value)
            guard.absorb()

    def delete(self: Any, name: str) -> None:
        if current() is not None and not guard.quiet:
            guard.forbid_delete(self, name)
        kind.__delattr__(self, name)

    names = {name: getattr(kind, name) for name in ("__module__", "__qualname__", "__doc__")}
    methods = {"__getattribute__": read, "__setattr__": write, "__delattr__": delete}
    return type(kind.__name__, (kind,), {**names, **methods})


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
    elif isinstance(value, (list, tuple, collections.deque, Mapping)):
        for one in itertools.chain(*value.items()) if isinstance(value, Mapping) else value:
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
        self.digests = self._now()

    def changed(self) -> list[Place]:
        """The attributes that others have been made or changed since; from now on they count as they are."""
        now = self._now()
        both = self.digests.keys() | now.keys()
        found = [place for place in both if self.digests.get(place) != now.get(place)]
        self.digests = now
        return sorted(found)

    def _now(self) -> dict[Place, bytes]:
        known: dict[int, bytes] = {}  # modules share one configuration
        found = {}
        for name, module in self._modules.items():
            for attribute, value in plain(vars_of(module)):
                if id(value) not in known:
                    known[id(value)] = digest(value)
                found[Place(name, attribute)] = known[id(value)]
        return found
