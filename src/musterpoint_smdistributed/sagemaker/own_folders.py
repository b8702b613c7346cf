"""Checkpoints of which each rank that shares layers has a folder of its own, as AWS's published scripts write them.

Those scripts call ``torch.distributed.checkpoint`` with the process group of the shards, once for each rank that shares
layers. Torch takes a parameter that is divided both ways for one of the whole job, and finds half of it missing. Here
it sees what this tensor rank has, in its shards.
"""

from __future__ import annotations

import functools
import importlib
import inspect
from typing import Any, Mapping, cast

import torch
import torch.distributed as dist
from torch.distributed.tensor import DTensor, Shard
from torch.utils import _pytree

from .state import state
from .tensor_parallel.dividing import divided_as

_FUNCTIONS = (("state_dict_saver", "_save_state_dict"), ("state_dict_loader", "_load_state_dict"))
_LOADER = ("optimizer", "load_sharded_optimizer_state_dict")
_DCP = "torch.distributed.checkpoint"
_DONE = "of_torch_alone"


def install() -> None:
    """Changes what torch's functions for saving and loading call, once."""
    for room, name in _FUNCTIONS:
        _replace(room, name, _with_own)


def install_loader() -> None:
    """Has torch's function for optimizer states take a process group, as AWS's torch does: when this package is
    imported, since scripts take the function by its name."""
    _replace(*_LOADER, _loaded)


def _loaded(
    original: Any,
    model_state_dict: Any,
    optimizer_key: str,
    storage_reader: Any,
    *args: Any,
    process_group: Any = None,
    **kwargs: Any,
) -> Any:
    """With a group its ranks read what they have of it, divided as the model is."""
    if process_group is None:
        return original(model_state_dict, optimizer_key, storage_reader, *args, **kwargs)
    metadata = storage_reader.read_metadata()
    values: dict[str, Any] = {}
    for key, about in metadata.state_dict_metadata.items():
        path = metadata.planner_data[key]
        if path[0] == optimizer_key:
            size = getattr(about, "size", None)
            values[key] = "" if size is None else _room(about, model_state_dict.get(path[2]))
    importlib.import_module(f"{_DCP}.state_dict_loader")._load_state_dict(
        state_dict=values, storage_reader=storage_reader, process_group=process_group
    )
    return importlib.import_module(f"{_DCP}._nested_dict").unflatten_state_dict(values, metadata.planner_data)


def _room(about: Any, parameter: Any) -> torch.Tensor:
    """A tensor to read into: divided as the parameter is, where its size is that of what this tensor rank has of it."""
    dtype = about.properties.dtype
    if isinstance(parameter, DTensor) and _part(parameter).shape == about.size:
        return divided_as(parameter, torch.zeros_like(parameter.to_local(), dtype=dtype))
    return torch.zeros(about.size, dtype=dtype)


def _replace(room: str, name: str, wrapper: Any) -> None:
    module = importlib.import_module(f"{_DCP}.{room}")
    original = getattr(module, name, None)
    if original is not None and not hasattr(original, _DONE):
        replaced = functools.wraps(original)(functools.partial(wrapper, original))
        vars(replaced)[_DONE] = original
        setattr(module, name, replaced)


def _with_own(original: Any, *args: Any, **kwargs: Any) -> Any:
    bound = inspect.signature(original).bind(*args, **kwargs)
    given, group = bound.arguments, bound.arguments.get("process_group")
    values = given["state_dict"]
    if _is_of_shards(group):
        given["state_dict"] = own(values)
    coordinator = given.get("coordinator_rank", 0)
    if group is not None and state._world is not None and coordinator >= dist.get_world_size(group):
        # of the whole job, as scripts say it and torch took it before
        given["coordinator_rank"] = dist.get_group_rank(group, coordinator)
    found = original(*bound.args, **bound.kwargs)
    if given["state_dict"] is not values:
        _put_back(values, given["state_dict"])
    return found


def _put_back(values: Any, read: Any) -> None:
    """What was read in the place of objects; tensors have it already."""
    for key, value in read.items() if isinstance(read, dict) else enumerate(read):
        if isinstance(value, (dict, list)) and type(values[key]) is type(value) and len(values[key]) == len(value):
            _put_back(values[key], value)
        elif not isinstance(values[key], torch.Tensor):
            values[key] = value


def _is_of_shards(group: Any) -> bool:
    """Whether a group has the shards of one tensor rank."""
    if group is None or state._world is None or state.world.tensor is None:
        return False
    return dist.get_world_size(group) < state.world.layout.size


def own(values: Mapping[str, Any]) -> dict[str, Any]:
    """The same tensors, as parts of what this tensor rank has; they share memory."""
    return cast("dict[str, Any]", _pytree.tree_map_only(DTensor, _part, dict(values)))


def _part(tensor: DTensor) -> torch.Tensor:
    mesh = tensor.device_mesh
    names = mesh.mesh_dim_names or ()
    if "tp" not in names:
        return tensor
    index = names.index("tp")
    if mesh.ndim == 1:
        return tensor.to_local()
    size, where = list(tensor.shape), tensor.placements[index]
    if isinstance(where, Shard):
        size[where.dim] //= mesh.size(index)
    rest = [Shard(each.dim) if isinstance(each, Shard) else each for each in tensor.placements]
    del rest[index]
    others = mesh[tuple(name for name in names if name != "tp")]
    strides = torch.empty(size, device="meta").stride()
    return DTensor.from_local(
        tensor.to_local(), others, rest, run_check=False, shape=torch.Size(size), stride=tuple(strides)
    )
