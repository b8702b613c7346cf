"""Which rank of the pipeline owns which module: by marks of the script, from a file, or evenly by cost.

``smp.partition(index)`` and ``smp.set_partition`` mark modules; :func:`agree` decides for all ranks alike.
"""

from __future__ import annotations

import contextlib
import json
import os
from typing import Any, Iterator, Mapping, NamedTuple, Sequence

import torch
import torch.distributed as dist
from torch import nn

from ..backend.exceptions import SMPConfigError
from . import balance, log
from .checkpoint_folders import write_text
from .config import Config
from .marks import Marks
from .state import state

_marks: Marks[int] = Marks("_smp_partition")


class Partition(NamedTuple):
    """Who owns what.

    owner: the pipeline rank of each module by its qualified name, also by its other names; ``""``, the root, is always
        on 0, where the step function runs. Modules without parameters and buffers run wherever they are called.
    reason: how it was decided, for people.
    """

    owner: dict[str, int]
    reason: str


@contextlib.contextmanager
def partition(index: int) -> Iterator[None]:
    """Modules made inside belong to partition ``index``; of nested contexts the innermost counts.

    Without effect where ``auto_partition`` is on. Raises SMPConfigError: there is no such partition.
    """
    _check_index(index, f"smp.partition({index!r})")
    with _marks.on_modules_made_inside(index):
        yield


def set_partition(module: nn.Module, index: int) -> None:
    """Puts a module and all modules in it into partition ``index``, as :func:`partition` does while they are made.

    Raises:
        SMPConfigError: there is no such partition.
        ValueError: the model has been divided already.
    """
    _check_index(index, f"smp.set_partition(…, {index!r})")
    if getattr(state.model, "partitioned", False) and state.cfg.pipeline_parallel_degree > 1:
        raise ValueError("smp.set_partition: the model has been divided already, at the first step; call it before")
    _marks.put_on(module, index)


def _check_index(index: int, call: str) -> None:
    parts = state.cfg.pipeline_parallel_degree
    if isinstance(index, bool) or not isinstance(index, int) or not 0 <= index < parts:
        raise SMPConfigError(f"{call}: expected a partition from 0 to {parts - 1}: {_degree(state.cfg)}")


def agree(root: nn.Module) -> Partition:
    """Decides on rank 0 and tells all; every rank calls it with the same model. Rank 0 logs the result."""
    said: list[Any] = [None]
    if state.world.rank == 0:
        try:
            said = [decide(root, state.cfg)]
        except SMPConfigError as error:
            said = [str(error)]
    if state.world.topology.world > 1:
        dist.broadcast_object_list(said, 0, group=state.group("world").process_group, device=torch.device("cpu"))
    if isinstance(said[0], str):
        raise SMPConfigError(said[0])
    decided = Partition(*said[0])
    log.say(table(root, decided, state.cfg.pipeline_parallel_degree))
    if state.world.rank == 0 and state.cfg.partition_file and not state.cfg.load_partition:
        _save(decided.owner, state.cfg)
    return decided


def decide(root: nn.Module, cfg: Config) -> Partition:
    """The same for the same model, without asking anybody."""
    parts = cfg.pipeline_parallel_degree
    if parts == 1:
        return Partition(dict.fromkeys(_names(root), 0), "there is one partition")
    if cfg.load_partition:
        return Partition(_together(root, _load(root, cfg)), f"loaded from {cfg.partition_file}")
    if not cfg.auto_partition:
        marks = {name: _marks.of(module, cfg.default_partition) for name, module in _modules(root)}
        wrong = next((name for name, index in marks.items() if index >= parts), None)
        if wrong is not None:
            raise SMPConfigError(f"module {wrong}: it is marked for partition {marks[wrong]}, but {_degree(cfg)}")
        return Partition(_together(root, {**marks, "": 0}), f"as the script marks it ({cfg.shown('auto_partition')})")
    weight = cfg.memory_weight
    units = balance.cut(root, parts, weight)
    owner = {name: index for index, part in enumerate(units) for unit in part for name in unit.names}
    reason = f"by cost ({weight:g} memory, {1 - weight:g} estimated time)"
    return Partition(_together(root, _spread(root, owner)), reason)


def _degree(cfg: Config) -> str:
    return cfg.shown("pipeline_parallel_degree")


def _modules(root: nn.Module) -> list[tuple[str, nn.Module]]:
    """Each module by each of its names; those outside come before those in them."""
    return list(root.named_modules(remove_duplicate=False))


def _names(root: nn.Module) -> list[str]:
    return [name for name, _ in _modules(root)]


def _spread(root: nn.Module, owner: Mapping[str, int]) -> dict[str, int]:
    """Owners of all modules: what is inside belongs with what it is in; what holds several, where the first is."""
    spread = {"": owner.get("", 0)}
    for name in _names(root)[1:]:
        inside = (index for each, index in owner.items() if each.startswith(f"{name}."))
        spread[name] = owner[name] if name in owner else next(inside, spread[name.rpartition(".")[0]])
    return spread


def _together(root: nn.Module, owner: dict[str, int]) -> dict[str, int]:
    """The same, but modules that share a parameter are where the first of them is, and one module has one owner."""
    holders: dict[int, list[str]] = {}
    for name, module in _modules(root):
        holders.setdefault(id(module), []).append(name)
        for parameter in module.parameters(recurse=False):
            holders.setdefault(id(parameter), []).append(name)
    moved = True
    while moved:  # a module may be tied to two others
        moved = False
        for names in holders.values():
            place = min(owner[name] for name in names)
            for name in names:
                if owner[name] != place:
                    owner[name], moved = place, True
    return owner


def _load(root: nn.Module, cfg: Config) -> dict[str, int]:
    path = cfg.partition_file
    where = f"partition_file {path}"
    try:
        with open(str(path), encoding="utf-8") as file:
            content = json.load(file)
        modules = content["modules"]
        owner = {str(name): int(index) for name, index in modules.items()}
    except OSError as error:
        raise SMPConfigError(f"{where} can't be read: {error.strerror or error}") from None
    except (ValueError, TypeError, KeyError, AttributeError):
        raise SMPConfigError(
            f'{where}: expected JSON such as {{"partitions": 2, "modules": {{"": 0, "layer4": 1}}}}'
        ) from None
    unknown = sorted(set(owner) - set(_names(root)))
    if unknown:
        raise SMPConfigError(f"{where} names {unknown[0]!r}, which isn't a module of this model")
    parts = cfg.pipeline_parallel_degree
    wrong = next((name for name, index in owner.items() if not 0 <= index < parts), None)
    if wrong is not None:
        raise SMPConfigError(f"{where} has {wrong!r} in partition {owner[wrong]}, but {_degree(cfg)}")
    spread: dict[str, int] = {}
    for name in _names(root):
        spread[name] = owner.get(name, spread.get(name.rpartition(".")[0], 0)) if name else 0
    return spread


def _save(owner: Mapping[str, int], cfg: Config) -> None:
    """Writes what :func:`_load` reads: each module that isn't where the one around it is."""
    path = os.path.abspath(str(cfg.partition_file))
    modules = {name: index for name, index in owner.items() if not name or owner[name.rpartition(".")[0]] != index}
    text = json.dumps({"partitions": cfg.pipeline_parallel_degree, "modules": modules}, indent=2)
    try:
        write_text(path, text + "\n")
    except OSError as error:
        log.warn(f"partition_file {path} can't be written: {error.strerror or error}; the job goes on without it")


def table(root: nn.Module, decided: Partition, parts: int) -> str:
    """Who owns what, a line for each partition."""
    sizes = [0] * parts
    for name, parameter in root.named_parameters():
        sizes[decided.owner[name.rpartition(".")[0]]] += parameter.numel()
    outermost: list[list[str]] = [[] for _ in range(parts)]
    within: dict[str, set[int]] = {name: set() for name in decided.owner}
    for name, index in decided.owner.items():
        within[name].add(index)
        while name:
            name = name.rpartition(".")[0]
            within[name].add(index)
    for name, module in _modules(root):
        outer = name and len(within[name]) == 1 and len(within[name.rpartition(".")[0]]) > 1
        if outer and balance.has_state(module):
            outermost[decided.owner[name]].append(name)
    if not any(outermost):
        outermost[0] = ["the whole model"]
    total = max(sum(sizes), 1)
    lines = [
        f"  partition {index}: {sizes[index]:>13,} parameters ({sizes[index] / total:4.0%}): "
        f"{_shortened(outermost[index])}"
        for index in range(parts)
    ]
    return "\n".join([f"the model is divided {decided.reason}", *lines])


def _shortened(names: Sequence[str]) -> str:
    """``layers.3 to layers.7, norm``: runs of numbered neighbours by their first and last."""
    runs: list[list[str]] = []
    for name in names:
        above, _, own = name.rpartition(".")
        last, _, number = runs[-1][-1].rpartition(".") if runs else ("", "", "")
        if own.isdecimal() and number.isdecimal() and above == last and int(own) == int(number) + 1:
            runs[-1].append(name)
        else:
            runs.append([name])
    shown = [run[0] if len(run) == 1 else f"{run[0]} to {run[-1]}" for run in runs]
    return ", ".join(shown) or "nothing"
