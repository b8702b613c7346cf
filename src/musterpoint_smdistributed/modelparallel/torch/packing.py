"""Arguments and results of modules as bytes and tensors, to send them to another rank.

Any object that pickle takes may hold tensors anywhere inside. They are taken out, in the order in which pickle meets
them, and travel beside the bytes; so autograd sees each of them. Parameters and modules of the model travel by name.
"""

from __future__ import annotations

import io
import pickle
from types import MappingProxyType
from typing import Any, Callable, Iterable, Mapping, NamedTuple, Sequence

import torch
from torch import nn

from . import absent
from .effects import Known, objects, plain, vars_of
from .errors import SMPStepError

Find = Callable[[Known], Any]


class Packed(NamedTuple):
    """An object without its tensors, and its tensors."""

    data: bytes
    tensors: list[torch.Tensor]


class Names:
    """The names of a model's parameters and modules, in both directions; they are the same on every rank."""

    def __init__(self, model: nn.Module) -> None:
        self.modules: Mapping[str, nn.Module] = dict(model.named_modules())
        self.parameters: Mapping[str, nn.Parameter] = dict(model.named_parameters())
        self._of = {id(module): ("module", name) for name, module in self.modules.items()}
        self._of.update((id(parameter), ("parameter", name)) for name, parameter in self.parameters.items())
        self.buffers: dict[str, torch.Tensor] = {}
        self.find_buffers()

    def find_buffers(self) -> None:
        """Buffers may be others than before: the model was moved or converted."""
        for buffer in self.buffers.values():
            self._of.pop(id(buffer), None)
        self.buffers = {
            f"{name}.{key}" if name else key: buffer
            for name, module in self.modules.items()
            for key, buffer in module._buffers.items()
            if buffer is not None
        }
        for name, buffer in self.buffers.items():
            self._of.setdefault(id(buffer), ("buffer", name))

    def look(self, others: Iterable[nn.Module]) -> bool:
        """Finds buffers that the script has made since; whether there are any. ``others``: modules of other ranks,
        which give up theirs."""
        before, held = self.buffers.keys(), (each for module in others for each in module._buffers.values())
        new = [each for each in held if each is not None and not absent.is_absent(each)]
        for each in new:
            absent.release(each)
        self.find_buffers()
        return bool(new) or self.buffers.keys() != before

    def of(self, value: object) -> tuple[str, str] | None:
        known = self._of.get(id(value))
        if known is not None and known[0] == "buffer" and self.find(*known) is not value:
            return None  # the module has another one meanwhile
        return known

    def find(self, kind: str, name: str) -> Any:
        if kind == "buffer":
            above, _, own = name.rpartition(".")
            return self.modules[above]._buffers.get(own)
        return self.modules[name] if kind == "module" else self.parameters[name]

    def reached(self, names: Iterable[str], given: Iterable[nn.Module] = ()) -> set[str]:
        """The names of these modules, of those that they refer to in attributes, and of all in them."""
        waiting = [*names, *(known[1] for each in given if (known := self.of(each)) is not None)]
        found: set[str] = set()
        while waiting:
            above = waiting.pop()
            new = {name for name in self.modules if is_in(name, above)} - found
            found |= new
            for name in new:
                held = (each for _, value in plain(vars_of(self.modules[name])) for each, _ in objects(value).values())
                waiting += [known[1] for each in held if isinstance(each, nn.Module) and (known := self.of(each))]
        return found


def is_in(name: str, above: str) -> bool:
    """Whether a module is another one or in it, by their names."""
    return not above or name == above or name.startswith(f"{above}.")


class _Pickler(pickle.Pickler):
    def __init__(self, file: io.BytesIO, names: Names | None, results: bool, known: Mapping[int, Known]) -> None:
        super().__init__(file, protocol=pickle.HIGHEST_PROTOCOL)
        self._names, self._results, self._elsewhere = names, results, known
        self._index: dict[int, int] = {}
        self.tensors: list[torch.Tensor] = []

    def persistent_id(self, value: Any) -> Any:
        if self._elsewhere and id(value) in self._elsewhere:
            return self._elsewhere[id(value)]
        if isinstance(value, Known):
            return value  # of a link before this one
        if not isinstance(value, (torch.Tensor, nn.Module)):
            return None
        known = self._names.of(value) if self._names is not None else None
        if known is not None and (known[0] != "buffer" or self._results or absent.is_absent(value)):
            return known
        if absent.is_absent(value):
            absent.refuse(value, "it would be sent as it is here, without its value")
        if isinstance(value, nn.Module):
            return None
        if id(value) not in self._index:
            self._index[id(value)] = len(self.tensors)
            self.tensors.append(value)
        return self._index[id(value)]


class _Unpickler(pickle.Unpickler):
    def __init__(self, data: bytes, tensors: Sequence[torch.Tensor], names: Names | None, find: Find | None) -> None:
        super().__init__(io.BytesIO(data))
        self._tensors, self._names, self._find = tensors, names, find

    def persistent_load(self, pid: Any) -> Any:
        if isinstance(pid, int):
            return self._tensors[pid]
        if isinstance(pid, Known):
            return pid if self._find is None else self._find(pid)
        assert self._names is not None
        return self._names.find(*pid)


def pack(
    value: Any, names: Names | None, what: str, results: bool = False, known: Mapping[int, Known] = MappingProxyType({})
) -> Packed:
    """Takes an object apart.

    Args:
        results: it is of a module; a buffer among it stays the one that its module has.
        known: objects by their ids that the other rank has, and what stands for them.
    """
    file = io.BytesIO()
    pickler = _Pickler(file, names, results, known)
    try:
        pickler.dump(value)
    except (pickle.PicklingError, TypeError, AttributeError, RuntimeError) as error:
        raise SMPStepError(
            f"{what} can't be sent to another rank of the pipeline: {error}. Pass tensors, and Python values and "
            "containers that pickle takes"
        ) from error
    for each in pickler.tensors:
        if each.layout is not torch.strided:
            raise SMPStepError(
                f"{what} has a tensor of layout {str(each.layout).removeprefix('torch.')}, which can't be sent to "
                "another rank of the pipeline. Pass its parts (values and indices) or to_dense(), or put the module "
                "on the rank that has it (smp.set_partition)"
            )
    return Packed(file.getvalue(), pickler.tensors)


def unpack(data: bytes, tensors: Sequence[torch.Tensor], names: Names | None, find: Find | None = None) -> Any:
    """The object again, around these tensors. ``find``: gives what a :class:`.Known` stands for, which stays else."""
    return _Unpickler(data, tensors, names, find).load()
