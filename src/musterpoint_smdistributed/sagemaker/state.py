"""The world that ``tsm.init`` makes: configuration, ranks and groups.

Within this package: ``from .state import state``; ``tsm.state`` is that object as well.
"""

from __future__ import annotations

import importlib
import logging
import os
import sys
from typing import Any, Mapping, NamedTuple, Sequence

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

from . import logger
from .config import WITHOUT_EFFECT, Config, read
from .errors import SMPNotInitializedError
from .layout import Layout


class World(NamedTuple):
    """What ``tsm.init`` found; it doesn't change afterwards.

    mesh: the ranks that FSDP knows, by copy of the model (``replicate``) and by shard (``shard``); with tensor
        parallelism and one copy by shard alone. None where torch's own FSDP decides.
    tensor: the ranks that share this one's layers; None where each has whole layers.
    groups: process groups by AWS's names for them.
    """

    cfg: Config
    layout: Layout
    mesh: DeviceMesh | None
    tensor: DeviceMesh | None
    groups: Mapping[str, Any]


def _group(name: str) -> property:
    return property(lambda self: self.world.groups[name])


class State:
    """What scripts ask, by AWS's names."""

    is_open_shim = True

    def __init__(self) -> None:
        self._world: World | None = None

    @property
    def world(self) -> World:
        """Raises SMPNotInitializedError before ``tsm.init``."""
        if self._world is None:
            raise SMPNotInitializedError("torch.sagemaker isn't initialized: call tsm.init() first")
        return self._world

    @property
    def cfg(self) -> Config:
        return self.world.cfg

    def __getattr__(self, name: str) -> Any:
        """The parameters in effect."""
        if name.startswith("_") or not hasattr(self.cfg, name):
            raise AttributeError(f"tsm.state has no {name!r}")
        return getattr(self.cfg, name)

    rank = property(lambda self: dist.get_rank())
    local_rank = property(lambda self: int(os.environ.get("LOCAL_RANK") or 0))
    world_size = property(lambda self: dist.get_world_size())
    world_process_group = property(lambda self: dist.group.WORLD)
    ranker = property(lambda self: self.world.layout)

    dp_rank = property(lambda self: self.world.layout.data_of(self.rank))
    """Whose data this rank trains on."""
    dp_size = property(lambda self: self.world.layout.datas)
    dp_process_group = _group("dp")
    """Ranks with different data, one of each."""
    tp_rank = property(lambda self: self.world.layout.get_tp_rank(self.rank))
    tp_size = property(lambda self: self.world.layout.tensor)
    tp_process_group = _group("tp")
    """The ranks that share this one's layers; None with degree 1."""
    cp_rank = property(lambda self: self.world.layout.get_cp_rank(self.rank))
    cp_size = property(lambda self: self.world.layout.context)
    cp_process_group = _group("cp")
    """The ranks that share this one's sequences; None with degree 1."""
    ep_rank = property(lambda self: self.world.layout.get_ep_rank(self.rank))
    ep_size = property(lambda self: self.world.layout.experts)
    ep_process_group = _group("ep")
    """The ranks that experts are divided over; None with degree 1."""
    rep_rank_process_group = _group("copy")
    """The ranks of one copy of the model; None where torch's own FSDP decides."""
    shard_process_group = _group("shard")
    rep_process_group = _group("replicate")
    """The ranks with the same shard; None where torch's own FSDP decides."""


state = State()


def init(config: str | Mapping[str, Any] | None = None) -> None:
    """Reads the configuration, joins torch.distributed's ranks where the script hasn't, and has FSDP shard as it says.

    Args:
        config: a dict, or the path of a JSON file; what the job's ``mp_parameters`` say counts more.

    Raises:
        SMPConfigError: a parameter is wrong, or the degrees don't divide the number of ranks.
    """
    if state._world is not None:
        return
    importlib.import_module("smdistributed.shared.rank_environment").export(os.environ)
    cfg = read(os.environ, sys.argv[1:], config)
    size = dist.get_world_size() if dist.is_initialized() else int(os.environ.get("WORLD_SIZE") or 1)
    layout = Layout.from_config(cfg, size)
    if not dist.is_initialized():
        backend = importlib.import_module("smdistributed.shared.backend")
        backend.join(backend.default())
    state._world = _world(cfg, layout)
    importlib.import_module(f"{__package__}.sharding").install()
    if cfg.sm_activation_offloading:
        importlib.import_module(f"{__package__}.offloading").install(cfg.activation_loading_horizon)
    logger.say(f"musterpoint's torch.sagemaker: world size {size}, {layout}")
    ineffective = [cfg.shown(name) for name in WITHOUT_EFFECT if name in cfg.origins]
    if ineffective:
        logger.say(f"without effect: {', '.join(ineffective)}", logging.WARNING)
    if cfg.unknown:
        logger.say(f"no parameters of this library, without effect: {', '.join(cfg.unknown)}", logging.WARNING)


def is_initialized() -> bool:
    """Whether ``tsm.init`` has been called."""
    return state._world is not None


def _world(cfg: Config, layout: Layout) -> World:
    """Makes the meshes and groups, on all ranks."""
    group = dist.group.WORLD
    names = ("dp", "tp", "cp", "ep", "copy", "shard", "replicate")
    groups: dict[str, Any] = dict.fromkeys(names) | {"dp": group}
    if layout.native:
        return World(cfg, layout, None, None, groups)
    kind = "cuda" if torch.cuda.is_available() and torch.version.cuda else "cpu"
    shape = {"replicate": layout.copies, "shard": layout.shards, "tp": layout.tensor}
    if layout.tensor == 1:
        del shape["tp"]
    elif layout.copies == 1:
        del shape["replicate"]  # FullyShardedDataParallel knows meshes of two dimensions only
    whole = init_device_mesh(kind, tuple(shape.values()), mesh_dim_names=tuple(shape))
    tensor = whole["tp"] if layout.tensor > 1 else None
    mesh = whole if tensor is None else whole[tuple(name for name in shape if name != "tp")]
    groups |= {name: whole.get_group(name) for name in shape}
    if tensor is not None and layout.shards > 1:
        whole["shard", "tp"]._flatten("copy")  # norms then take one reduction
    each = layout.shards * layout.tensor
    if tensor is None:
        groups["copy"] = groups["shard"]
    elif layout.copies == 1:
        groups["copy"], groups["replicate"] = group, _of_this_rank(layout.get_rep_groups())
    else:
        firsts = range(0, layout.size, each)
        groups["copy"] = _of_this_rank([list(range(first, first + each)) for first in firsts])
    return World(cfg, layout, mesh, tensor, groups | _divided(layout, groups))


def _divided(layout: Layout, groups: Mapping[str, Any]) -> dict[str, Any]:
    """The groups of what divides a copy once more, and of the ranks with different data."""
    width, context, ranks = layout.tensor, layout.context, range(layout.size)
    found: dict[str, Any] = {}
    if width * context > 1:
        found["dp"] = _of_this_rank([list(ranks[first :: width * context]) for first in range(width * context)])
    for name, degree in (("cp", context), ("ep", layout.experts)):
        if degree > 1:
            firsts = [first for first in ranks if layout.get_shard_rank(first) % degree == 0]
            found[name] = _of_this_rank([list(ranks[first : first + degree * width : width]) for first in firsts])
    return found


def _of_this_rank(groups: Sequence[Sequence[int]]) -> Any:
    """The group that this rank is in, of several that have no rank in common."""
    return dist.new_subgroups_by_enumeration([list(each) for each in groups])[0]  # type: ignore[no-untyped-call]
