"""Checkpoints of which each rank that shares layers has a folder of its own, as AWS's published scripts write them.

Those scripts call ``torch.distributed.checkpoint`` with the process group of the shards, once for each rank that shares
layers. Torch takes a parameter that is divided both ways for one of the whole job, and finds half of it missing. Here
it sees what this tensor rank has, in its shards.
"""

from __future__ import annotations

import functools
import importlib
import inspect
from typing import Any, Mapping

import torch
import torch.distributed as dist
from torch.distributed.tensor import DTensor, Shard
from torch.utils import _pytree

from .state import state

_FUNCTIONS = (("state_dict_saver", "_save_state_dict"), ("state_dict_loader", "_load_state_dict"))
_LAYOUT = ("optimizer", "_get_state_dict_2d_layout")
_DONE = "of_torch_alone"


def install() -> None:
    """Changes what torch's functions for saving and loading call, once."""
    for room, name in _FUNCTIONS:
        _replace(room, name, _with_own)
    _replace(*_LAYOUT, _own_layout)


def _replace(room: str, name: str, wrapper: Any) -> None:
    module = importlib.import_module(f"torch.distributed.checkpoint.{room}")
    original = getattr(module, name, None)
    if original is not None and not hasattr(original, _DONE):
        replaced = functools.wraps(original)(functools.partial(wrapper, original))
        vars(replaced)[_DONE] = original
        setattr(module, name, replaced)


def _with_own(original: Any, *args: Any, **kwargs: Any) -> Any:
    bound = inspect.signature(original).bind(*args, **kwargs)
    given, group = bound.arguments, bound.arguments.get("process_group")
    if _is_of_shards(group):
        given["state_dict"] = own(given["state_dict"])
    coordinator = given.get("coordinator_rank", 0)
    if group is not None and state._world is not None and coordinator >= dist.get_world_size(group):
        given["coordinator_rank"] = dist.get_group_rank(
            group, coordinator
        )  # the scripts', and older torch's, is global
    return original(*bound.args, **bound.kwargs)


def _own_layout(original: Any, state_dict: Mapping[str, Any]) -> Any:
    """What torch asks the model's state for before it reads the optimizer's: sizes, and the ranks with shards."""
    if state._world is None or state.world.tensor is None:
        return original(state_dict)
    specs = {key: (None, value.size()) for key, value in own(state_dict).items() if isinstance(value, torch.Tensor)}
    return specs, state.world.groups["shard"]


def _is_of_shards(group: Any) -> bool:
    """Whether a group has the shards of one tensor rank."""
    if group is None or state._world is None or state.world.tensor is None:
        return False
    return dist.get_world_size(group) < state.world.layout.size


def own(values: Mapping[str, Any]) -> dict[str, Any]:
    """The same tensors, as parts of what this tensor rank has; they share memory."""
    found: dict[str, Any] = _pytree.tree_map_only(DTensor, _part, dict(values))
    return found


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
