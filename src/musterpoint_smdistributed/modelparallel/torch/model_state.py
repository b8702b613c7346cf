"""Values of a divided model's parameters and buffers: given to their ranks, gathered from them, and given back."""

from __future__ import annotations

import contextlib
import copy
from collections import OrderedDict
from typing import Any, Callable, Iterable, Iterator, Mapping, MutableMapping

import torch
import torch.distributed as dist
from torch import nn

from . import absent, communication, delayed
from .connection import is_one_piece, once
from .distributed_parameters import division, whole_of
from .effects import tables_of_hooks, vars_of
from .state import Group, state

PARTIAL = "_smp_is_partial"
"""The key that says that a state dict has one rank's part only."""

Holder = Callable[[str], int]
"""The rank of the pipeline that has the value of a key."""


def local_state(module: nn.Module, holder: Holder, rank: int) -> OrderedDict[str, Any]:
    """This rank's part of the state dict, and the key that says so."""
    with torch.no_grad():
        values = module.state_dict(keep_vars=True)
        part = OrderedDict(
            (key, value.detach().clone() if isinstance(value, torch.Tensor) else value)
            for key, value in values.items()
            if holder(key) == rank
        )
    part[PARTIAL] = True
    return part


def full_state(
    module: nn.Module, holder: Holder, rank: int, ranks: tuple[int, ...], group: Any
) -> OrderedDict[str, Any]:
    """The state dict of the whole model on every rank of the pipeline, each of which calls this."""
    full: OrderedDict[str, Any] = OrderedDict()
    sent: dict[int, torch.Tensor] = {}  # tied parameters have several keys
    values = module.state_dict(keep_vars=True)
    told = {
        key: torch.empty_like(value, device="meta") if isinstance(value, torch.Tensor) else value
        for key, value in values.items()
        if holder(key) == rank and not isinstance(value, nn.Parameter)
    }
    gathered: list[dict[str, Any]] = [{} for _ in ranks]
    if not all(isinstance(each, nn.Parameter) for each in values.values()):
        dist.all_gather_object(gathered, told, group=group)  # forward passes may give buffers other shapes
    with torch.no_grad():
        for key, value in values.items():
            mine, there = holder(key) == rank, gathered[holder(key)].get(key, value)
            if not isinstance(there, torch.Tensor):
                full[key] = there
                continue
            if id(value) not in sent:
                room = torch.empty(there.shape, dtype=there.dtype, device=value.device)
                tensor = value.detach().clone(memory_format=torch.contiguous_format) if mine else room
                dist.broadcast(tensor, ranks[holder(key)], group=group)
                sent[id(value)] = tensor
            full[key] = sent[id(value)]
    return full


def whole_values(module: nn.Module, values: OrderedDict[str, Any]) -> OrderedDict[str, Any]:
    """The state dict with all parts of parameters that tensor-parallel ranks share out, each of which calls this."""
    with torch.no_grad():
        made: dict[int, torch.Tensor] = {}
        for key, parameter in module.named_parameters(remove_duplicate=False):
            found = division(parameter)
            if found is not None and key in values:
                if id(parameter) not in made:
                    made[id(parameter)] = whole_of(values[key], found)
                values[key] = made[id(parameter)]
    return values


_OF_SAVING = ("_state_dict_pre_hooks", "_state_dict_hooks")
_OF_LOADING = ("_load_state_dict_pre_hooks", "_load_state_dict_post_hooks")


def has_hooks(module: nn.Module) -> bool:
    """Tells whether a module has hooks of state dicts."""
    return any(tables_of_hooks(module.modules(), _OF_SAVING + _OF_LOADING))


def as_hooks_see_it(
    module: nn.Module, whole: Callable[[], OrderedDict[str, Any]], *args: Any, **kwargs: Any
) -> OrderedDict[str, Any]:
    """The state dict of whole values. Hooks see those on every rank, and make of them what they would in one process.

    whole: gives it without hooks.
    """
    if not has_hooks(module):
        return whole()
    tables = [(each, dict(each)) for each in tables_of_hooks(module.modules(), _OF_SAVING)]
    for table, _ in tables:
        table.clear()
    try:
        values = whole()
    finally:
        for table, hooks in tables:
            table.update(hooks)
    with with_memory(module, values), torch.no_grad():
        found: OrderedDict[str, Any] = module.state_dict(*args, **kwargs)
        copies: dict[Any, torch.Tensor] = {}  # tied ones stay tied
        for key, value in found.items():
            if isinstance(value, torch.Tensor):
                place = value.data_ptr(), value.shape, value.stride(), value.dtype
                found[key] = copies.setdefault(place, value.clone())
    return found


@contextlib.contextmanager
def with_memory(module: nn.Module, values: Mapping[str, Any]) -> Iterator[None]:
    """Puts whole ``values`` into the places of parts; other ranks' tensors get any values."""
    made: dict[int, torch.Tensor] = {}
    replaced = []
    for path, each in module.named_modules():
        for held in (vars_of(each)["_parameters"], vars_of(each)["_buffers"]):
            for name, old in held.items():
                value = values.get(f"{path}.{name}" if path else name)
                is_away = absent.is_absent(old)
                if not is_away and (value is None or not isinstance(old, nn.Parameter) or division(old) is None):
                    continue
                if id(old) not in made:
                    new = torch.empty(old.shape, dtype=old.dtype, device=old.device) if value is None else value
                    made[id(old)] = nn.Parameter(new, old.requires_grad) if isinstance(old, nn.Parameter) else new
                replaced.append((held, name, old, made[id(old)]))
    for held, name, _, new in replaced:
        held[name] = new
    try:
        yield
    finally:
        for held, name, old, new in replaced:
            if held.get(name) is new:
                held[name] = old


def without_mark(values: Any) -> Any:
    """The same without the key, in state dicts among its values as well: no other program expects it."""
    if not isinstance(values, MutableMapping):
        return values
    marked = [key for key, value in values.items() if isinstance(value, dict) and PARTIAL in value]
    if PARTIAL not in values and not marked:
        return values
    copied = copy.copy(values)  # with torch's record of versions
    copied.pop(PARTIAL, None)
    for key in marked:
        copied[key] = without_mark(values[key])
    return copied


def with_tied(module: nn.Module, values: Mapping[str, Any]) -> Mapping[str, Any]:
    """The same with every name of a parameter that has several, of which a file may have one (safetensors)."""
    named = list(module.named_parameters(remove_duplicate=False))
    given = {id(each): values[name] for name, each in reversed(named) if name in values}
    return {**values, **{name: given[id(each)] for name, each in named if name not in values and id(each) in given}}


def load_local(
    module: nn.Module, values: Mapping[str, Any], holder: Holder, rank: int, strict: bool
) -> tuple[list[str], list[str]]:
    """Loads this rank's part out of a full or a partial state dict, as ``Module.load_state_dict`` does.

    Returns the keys that are missing, and those that the model doesn't have.
    """
    partial = PARTIAL in values
    given = OrderedDict((key, value) for key, value in values.items() if key != PARTIAL)
    metadata = getattr(values, "_metadata", {})
    keys = list(module.state_dict(keep_vars=True))
    expected = [key for key in keys if not partial or holder(key) == rank]
    missing = [key for key in expected if key not in given]
    unexpected = [key for key in given if key not in set(keys)]
    errors: list[str] = []
    if strict and unexpected:
        errors.append("Unexpected key(s) in state_dict: " + ", ".join(f'"{key}"' for key in unexpected) + ".")
    if strict and missing:
        errors.append("Missing key(s) in state_dict: " + ", ".join(f'"{key}"' for key in missing) + ".")
    if not errors:
        for name, inner in module.named_modules():
            prefix = f"{name}." if name else ""
            if holder(prefix) == rank:
                # torch's own way for one module without its children: its hooks, its versions, its extra state
                inner._load_from_state_dict(given, prefix, metadata.get(name, {}), False, [], [], errors)
    if errors:
        raise RuntimeError(f"Error(s) in loading state_dict for {type(module).__name__}:\n\t" + "\n\t".join(errors))
    return missing, unexpected


# ---- the values that all ranks begin with: those of rank 0, and of each parameter only where it is kept

Keeps = Callable[[str], bool]


def share(named: Iterable[tuple[str, torch.Tensor]], keeps: Keeps, device: torch.device | None = None) -> None:
    """Every rank begins with the values of rank 0; with the parts of its replica that belong to this rank.

    Delayed parameters get their memory one after the other, and only on ranks that keep them, on ``device``. Every rank
    calls it with the same tensors.
    """
    with torch.no_grad():
        for name, tensor in named:
            if isinstance(tensor, nn.Parameter) and delayed.is_delayed(tensor):
                _settle(tensor, keeps(name), device)
            else:
                _broadcast(tensor.detach(), _groups(tensor))


def share_buffers(buffers: Iterable[torch.Tensor]) -> None:
    """The replicas continue with the same buffers, those of the first."""
    for buffer in buffers if state.cfg.ddp else ():
        _broadcast(buffer, [state.group("dp")])


def agree(module: nn.Module) -> None:
    """What any rank has used the values of already isn't delayed on the others either."""
    if not delayed.used:
        return
    named = delayed.named(module)
    everywhere = set.intersection(*communication.allgather({name for name, _ in named}, communication.WORLD))
    for name, each in named:
        if name not in everywhere:
            delayed.materialize(each)


def everything(name: str) -> bool:
    return True


def _settle(parameter: nn.Parameter, keeps: bool, device: torch.device | None) -> None:
    how = delayed.how(parameter)
    groups = [state.group("world")] if how.cut is not None else _groups(parameter)
    if all(group.rank == 0 for group in groups):
        values = how.whole()
    else:
        values = torch.empty_strided(how.view.size, how.view.stride, dtype=how.dtype)
    _broadcast(values, groups)
    if keeps:
        part = how.part_of(values)
        delayed.give(parameter, part if device is None else part.to(device))
    else:
        delayed.release(parameter)


def _groups(tensor: torch.Tensor) -> list[Group]:
    """The groups over which the first rank's values go, one after the other."""
    return [state.group("world")] if division(tensor) is None else [state.group("rdp"), state.group("pp")]


def _broadcast(tensor: torch.Tensor, groups: Iterable[Group]) -> None:
    values = once(tensor)
    plain = values.resolve_conj().resolve_neg()
    sent = plain if is_one_piece(plain) else plain.contiguous()  # collectives go by the first address alone
    for group in groups:
        if group.size > 1:
            dist.broadcast(sent, group.ranks[0], group=group.process_group)
    if sent is not values:
        values.copy_(sent)
