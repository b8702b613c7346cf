"""Tensors that give up their memory while a model is made, and how to get their values again.

While a :class:`Recorder` is on every operation on CPU tensors runs as it would without it, so random generators go on
alike and whatever a model decides by values it decides alike. What each storage was made of is noted meanwhile, and
those that nobody has used for a while are emptied. Who uses one again finds it as it was: the same operations run
again, with the random generator as it was then.
"""

from __future__ import annotations

import gc
import itertools
from collections import Counter, OrderedDict
from typing import Any, Iterable, Iterator, NamedTuple

import torch
from torch.multiprocessing.reductions import StorageWeakRef
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes

from . import absent
from .connection import is_one_piece

RESIDENT = 32 << 20
"""How many bytes stay in memory besides what an operation needs."""
SMALL = 64 << 10
"""Storages up to so many bytes stay: notes take about as much. Where others are made of them their values are noted."""
LONGEST = 256
"""A storage that was changed in part more often than this stays, for the same reason."""

_EMPTY = frozenset({"empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided"})
_OVERWRITING = frozenset({
    "normal_", "uniform_", "zero_", "fill_", "copy_", "exponential_", "log_normal_", "cauchy_", "geometric_", "random_",
})  # fmt: skip
"""Functions that use nothing of what was in the tensor before."""
_RESIZING = frozenset({"resize_", "resize_as_", "set_"})
_AT_MEMORY = frozenset({
    "numpy", "__array__", "tolist", "data_ptr", "untyped_storage", "storage", "_typed_storage", "share_memory_",
    "__reduce_ex__", "__dlpack__", "pin_memory", "is_set_to",
})  # fmt: skip
"""Functions that reach a tensor's memory past the dispatcher, and may keep its address."""


class Value:
    """The contents of a storage at one time.

    operation: what made it; None: memory as the system gives it.
    slot: which of the operation's results has it; None: the storage that it changed.
    """

    __slots__ = ("bytes", "operation", "slot")

    def __init__(self, operation: Operation | None, slot: int | None, size: int) -> None:
        self.operation, self.slot, self.bytes = operation, slot, size


class View(NamedTuple):
    """A tensor by what is in its storage."""

    value: Value
    size: tuple[int, ...]
    stride: tuple[int, ...]
    offset: int
    dtype: torch.dtype

    def on(self, storage: torch.UntypedStorage) -> torch.Tensor:
        empty = torch.empty(0, dtype=self.dtype, device="cpu")
        return empty.set_(storage, self.offset, self.size, self.stride)


class Operation(NamedTuple):
    """One call of an operator; tensors among its arguments are views.

    number: their order.
    inputs: the values that it reads.
    before: what was in the storage that it changes; None: it changes none.
    generator: the state of torch's random generator before; None: it doesn't draw from that.
    """

    number: int
    function: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    inputs: tuple[Value, ...]
    before: Value | None
    generator: torch.Tensor | None

    def used(self) -> Iterator[Value]:
        yield from self.inputs
        if self.before is not None:
            yield self.before


class _Generator(NamedTuple):
    """A generator of the script's own, as it was."""

    state: torch.Tensor


class _Elsewhere(Exception):
    """An argument is a large tensor that nobody knows how to make."""


class Contents:
    """What is known of one storage.

    stays: it is in memory for good, and its value isn't known any more.
    """

    def __init__(self, storage: torch.UntypedStorage, value: Value) -> None:
        self._reference: Any = StorageWeakRef(storage)  # type: ignore[no-untyped-call]
        self.value = value
        self.changes = 0
        self.stays = False
        self.emptied = False

    @property
    def key(self) -> int:
        return int(self._reference.cdata)

    def storage(self) -> torch.UntypedStorage | None:
        """None where nothing has it any more."""
        return torch.UntypedStorage._new_with_weak_ptr(self._reference.cdata)

    def restore(self) -> None:
        """Has it in memory."""
        storage = self.storage()
        if self.emptied and storage is not None:
            self.emptied = False
            with _disable_current_modes(), torch._C.DisableTorchFunction():
                storage.resize_(self.value.bytes)
                if self.value.operation is not None:
                    storage.copy_(contents(self.value))

    def empty(self) -> None:
        storage = self.storage()
        if storage is not None:
            storage.resize_(0)
            self.emptied = True


class Recorder(TorchDispatchMode):
    """Notes what happens inside of it to tensors that are made there.

    Afterwards :meth:`restore_all` has to be called, before anything uses one of them.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.pauses = 0
        """How many callers have paused the notes: while there are any, new tensors are neither noted nor freed."""
        self._known: dict[int, Contents] = {}
        self._resident: OrderedDict[int, Contents] = OrderedDict()
        self._resident_bytes = 0
        self._numbers = itertools.count()
        self.at_memory = _AtMemory(self)
        """Is to be entered before it."""
        self._many = 1000
        self._emptied_bytes = 0

    def view(self, tensor: torch.Tensor) -> View | None:
        """How to get a tensor's values again; None: it stays."""
        known = self.of(tensor)
        return None if known is None or known.stays else _view(tensor, known.value)

    def of(self, tensor: torch.Tensor) -> Contents | None:
        """What is known of a tensor's storage."""
        return self._known.get(tensor.untyped_storage()._cdata) if _is_plain(tensor) else None

    def restore_all(self) -> None:
        """Has everything in memory that anything still uses."""
        gc.collect()
        for each in self._known.values():
            each.restore()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        tensors = [each for each in _pytree.tree_leaves((args, kwargs)) if isinstance(each, torch.Tensor)]
        written = _written(func, args, kwargs)
        name = func.overloadpacket.__name__
        target = self.of(written[0]) if len(written) == 1 else None
        overwrites = target is not None and name in _OVERWRITING and _covers(written[0], target.value.bytes)
        if target is not None and overwrites and len(tensors) == 1:  # what was there needn't be computed
            target.value = Value(None, None, target.value.bytes)
        for tensor in tensors:
            known = self.of(tensor)
            if known is not None:
                known.restore()
        operation = None
        can_run_again = len(written) == (target is not None and not target.stays) and name not in _RESIZING
        if can_run_again and not self.pauses and all(map(_is_plain, tensors)):
            operation = self._noted(func, args, kwargs, target, overwrites)
        result = func(*args, **kwargs)
        self._changed(operation, written, overwrites)
        made = self._made(operation, name, tensors, result)
        self._make_room([*tensors, *made])
        return result

    def _noted(
        self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], target: Contents | None, overwrites: bool
    ) -> Operation | None:
        """The operation, before it runs; None where it couldn't run again."""
        inputs: list[Value] = []
        before = target.value if target is not None else None
        if overwrites and before is not None:
            before = Value(None, None, before.bytes)

        def noted(each: Any) -> Any:
            if isinstance(each, torch.Generator):
                return _Generator(each.get_state())
            if not isinstance(each, torch.Tensor):
                return each
            known = self.of(each)
            if known is not None and known is target:
                assert before is not None
                return _view(each, before)
            if known is not None and not known.stays:
                inputs.append(known.value)
                return _view(each, known.value)
            if each.numel() * each.element_size() > SMALL:
                raise _Elsewhere
            return each.detach().clone()

        try:
            new_args, new_kwargs = _pytree.tree_map(noted, (args, kwargs))
        except _Elsewhere:
            return None
        draws = torch.Tag.nondeterministic_seeded in func.tags
        generator = torch.get_rng_state() if draws else None
        return Operation(next(self._numbers), func, new_args, new_kwargs, tuple(inputs), before, generator)

    def _changed(self, operation: Operation | None, written: Iterable[torch.Tensor], overwrites: bool) -> None:
        for tensor in written:
            known = self.of(tensor)
            if known is not None:
                known.changes = 0 if overwrites else known.changes + 1
                known.stays |= operation is None or known.changes > LONGEST
                known.value = Value(operation, None, known.value.bytes)

    def _made(
        self, operation: Operation | None, name: str, arguments: list[torch.Tensor], result: Any
    ) -> list[torch.Tensor]:
        """Notes what is new among the results, and returns that."""
        new: list[torch.Tensor] = []
        if operation is None:
            return new
        given = {each.untyped_storage()._cdata for each in arguments}
        for slot, each in enumerate(_pytree.tree_leaves(result)):
            if not isinstance(each, torch.Tensor) or not _is_plain(each):
                continue
            storage = each.untyped_storage()
            if storage._cdata in given or storage.nbytes() <= SMALL or not storage.resizable():
                continue
            made = None if name in _EMPTY else operation
            self._known[storage._cdata] = Contents(storage, Value(made, slot, storage.nbytes()))
            new.append(each)
        if len(self._known) > self._many:
            self._known = {key: each for key, each in self._known.items() if each.storage() is not None}
            self._many = 2 * len(self._known) + 1000
        return new

    def _make_room(self, used: list[torch.Tensor]) -> None:
        """Empties what has been used least recently."""
        in_use = set()
        for tensor in used:
            known = self.of(tensor)
            if known is not None and not known.stays:
                in_use.add(known.key)
                if known.key not in self._resident:
                    self._resident[known.key] = known
                    self._resident_bytes += known.value.bytes
                self._resident.move_to_end(known.key)
        while self._resident_bytes > RESIDENT and len(self._resident) > len(in_use):
            _key, known = self._resident.popitem(last=False)
            self._resident_bytes -= known.value.bytes
            if not known.stays:
                known.empty()
                self._emptied_bytes += known.value.bytes
        if self._emptied_bytes >= RESIDENT:
            self._emptied_bytes = 0
            absent.give_back()


class _AtMemory(TorchFunctionMode):
    """Has tensors in memory before something reads that past the dispatcher."""

    def __init__(self, recorder: Recorder) -> None:
        super().__init__()
        self._recorder = recorder

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = getattr(func, "__name__", "")
        if name in _AT_MEMORY or name == "__deepcopy__":
            for each in args:
                known = self._recorder.of(each) if isinstance(each, torch.Tensor) else None
                if known is not None:
                    known.restore()
                    known.stays |= name != "__deepcopy__"  # which keeps no address
        return func(*args, **(kwargs or {}))


def _is_plain(tensor: torch.Tensor) -> bool:
    """Whether its values are nothing but what is in its storage."""
    return (
        type(tensor) in (torch.Tensor, torch.nn.Parameter)
        and tensor.device.type == "cpu"
        and tensor.layout == torch.strided
        and not (tensor.is_quantized or tensor.is_conj() or tensor.is_neg())
    )


def _view(tensor: torch.Tensor, value: Value) -> View:
    return View(value, tuple(tensor.size()), tensor.stride(), int(tensor.storage_offset()), tensor.dtype)


def _written(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[torch.Tensor]:
    """The tensors that an operator changes."""
    found: list[torch.Tensor] = []
    for index, argument in enumerate(func._schema.arguments):
        if argument.alias_info is not None and argument.alias_info.is_write:
            given = args[index] if index < len(args) else kwargs.get(argument.name)
            found += [each for each in _pytree.tree_leaves(given) if isinstance(each, torch.Tensor)]
    return found


def _covers(tensor: torch.Tensor, size: int) -> bool:
    """Whether a tensor is all of its storage of so many bytes, each element once."""
    whole = tensor.storage_offset() == 0 and tensor.numel() * tensor.element_size() == size
    return whole and is_one_piece(tensor)


# ---- values again


def contents(value: Value) -> torch.UntypedStorage:
    """A storage of its own with these contents, made by the operations that made them first."""
    if value.operation is None:
        return _memory(value.bytes)
    operations, made, uses = _needed(value)
    storages: dict[Value, torch.UntypedStorage] = {}
    with torch.no_grad(), torch.random.fork_rng(devices=[]), _disable_current_modes(), torch._C.DisableTorchFunction():
        for operation in operations:
            _run(operation, made[operation.number], uses, storages)
            for each in operation.used():
                uses[each] -= 1
                if not uses[each]:
                    storages.pop(each, None)
    return storages[value]


def _needed(value: Value) -> tuple[list[Operation], dict[int, set[Value]], Counter[Value]]:
    """The operations that make a value, in their order; which values each makes; how often each value is used."""
    uses: Counter[Value] = Counter([value])
    found: dict[int, Operation] = {}
    made: dict[int, set[Value]] = {}
    looked_at = [value]
    while looked_at:
        each = looked_at.pop()
        operation = each.operation
        if operation is None:
            continue
        made.setdefault(operation.number, set()).add(each)
        if operation.number not in found:
            found[operation.number] = operation
            uses.update(operation.used())
            looked_at += operation.used()
    return [found[number] for number in sorted(found)], made, uses


def _run(
    operation: Operation, made: set[Value], uses: Counter[Value], storages: dict[Value, torch.UntypedStorage]
) -> None:
    """Runs an operation on the values that are there already."""
    changed: torch.UntypedStorage | None = None
    for each in operation.used():
        if each not in storages:
            storages[each] = _memory(each.bytes)
    if operation.before is not None:
        changed = storages[operation.before]
        if uses[operation.before] > 1:
            changed = changed.clone()  # type: ignore[no-untyped-call]

    def tensor(each: Any) -> Any:
        if isinstance(each, View):
            return each.on(changed if changed is not None and each.value is operation.before else storages[each.value])
        return torch.Generator().set_state(each.state) if isinstance(each, _Generator) else each

    args, kwargs = _pytree.tree_map(
        tensor, (operation.args, operation.kwargs), is_leaf=lambda each: isinstance(each, (View, _Generator))
    )
    if operation.generator is not None:
        torch.set_rng_state(operation.generator)
    results = _pytree.tree_leaves(operation.function(*args, **kwargs))
    for each in made:
        if each.slot is not None:
            storages[each] = results[each.slot].untyped_storage()
        elif changed is not None:
            storages[each] = changed


def _memory(size: int) -> torch.UntypedStorage:
    return torch.UntypedStorage(size)  # type: ignore[no-untyped-call]
