"""The world that ``tsm.init`` makes: configuration, ranks and groups.

Within this package: ``from .state import state``; ``tsm.state`` is that object as well.
"""

from __future__ import annotations

import importlib
import logging
import os
import sys
from typing import Any, Mapping, NamedTuple

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import HashStore
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

from . import logger
from .config import Config, read
from .errors import SMPConfigError, SMPNotInitializedError


class Ranker:
    """Where ranks stand: neighbours share one copy of the model.

    Args:
        size: how many ranks one copy has.
    """

    def __init__(self, size: int) -> None:
        self._size = size

    def get_rep_rank(self, rank: int) -> int:
        """Which copy of the model ``rank`` is of."""
        return rank // self._size

    def get_shard_rank(self, rank: int) -> int:
        """Which shard of it ``rank`` has."""
        return rank % self._size

    def get_tp_rank(self, rank: int) -> int:
        return 0

    get_ep_rank = get_cp_rank = get_tp_rank


class World(NamedTuple):
    """What ``tsm.init`` found; it doesn't change afterwards.

    mesh: the ranks, by copy of the model (``replicate``) and by shard (``shard``); None where torch's own FSDP decides.
    """

    cfg: Config
    mesh: DeviceMesh | None
    ranker: Ranker


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
        if not name.startswith("_") and hasattr(Config, "__annotations__") and name in Config.__annotations__:
            return getattr(self.cfg, name)
        raise AttributeError(f"tsm.state has no {name!r}")

    @property
    def rank(self) -> int:
        return dist.get_rank()

    @property
    def local_rank(self) -> int:
        return int(os.environ.get("LOCAL_RANK") or 0)

    @property
    def world_size(self) -> int:
        return dist.get_world_size()

    @property
    def ranker(self) -> Ranker:
        return self.world.ranker

    @property
    def world_process_group(self) -> Any:
        return dist.group.WORLD

    @property
    def dp_rank(self) -> int:
        """Whose data this rank trains on."""
        return self.rank

    @property
    def dp_size(self) -> int:
        return self.world_size

    @property
    def dp_process_group(self) -> Any:
        return dist.group.WORLD

    tp_size = ep_size = cp_size = 1
    tp_rank = ep_rank = cp_rank = 0
    tp_process_group = ep_process_group = cp_process_group = None

    @property
    def rep_rank_process_group(self) -> Any:
        """The ranks of one copy of the model; None where torch's own FSDP decides."""
        return self._group("shard")

    @property
    def shard_process_group(self) -> Any:
        return self._group("shard")

    @property
    def rep_process_group(self) -> Any:
        """The ranks with the same shard; None where torch's own FSDP decides."""
        return self._group("replicate")

    def _group(self, dimension: str) -> Any:
        mesh = self.world.mesh
        return None if mesh is None else mesh.get_group(dimension)


state = State()


def init(config: str | Mapping[str, Any] | None = None) -> None:
    """Reads the configuration, joins torch.distributed's ranks where the script hasn't, and has FSDP shard as it says.

    Args:
        config: a dict, or the path of a JSON file; what the job's ``mp_parameters`` say counts more.

    Raises:
        SMPConfigError: a parameter is wrong, or the degree doesn't divide the number of ranks.
        SMPUnsupportedError: a degree asks for what isn't there.
    """
    if state._world is not None:
        return
    importlib.import_module("smdistributed.shared.rank_environment").export(os.environ)
    cfg = read(os.environ, sys.argv[1:], config)
    size = dist.get_world_size() if dist.is_initialized() else int(os.environ.get("WORLD_SIZE") or 1)
    degree = cfg.hybrid_shard_degree
    if degree and size % degree:
        raise SMPConfigError(
            f"{cfg.shown('hybrid_shard_degree')} doesn't divide the job's world size {size}: start a multiple of "
            f"{degree} ranks, or change the degree"
        )
    _join()
    state._world = World(cfg, _mesh(size, degree), Ranker(degree or size))
    importlib.import_module(f"{__package__}.sharding").install()
    if cfg.sm_activation_offloading:
        importlib.import_module(f"{__package__}.offloading").install(cfg.activation_loading_horizon)
    logger.say(f"musterpoint's torch.sagemaker: world size {size}, {_shards(size, degree)}")
    if cfg.unknown:
        logger.say(f"no parameters of this library, without effect: {', '.join(cfg.unknown)}", logging.WARNING)


def is_initialized() -> bool:
    """Whether ``tsm.init`` has been called."""
    return state._world is not None


def _shards(size: int, degree: int) -> str:
    if degree == 0:
        return "sharded as the script's FSDP says (hybrid_shard_degree 0)"
    return f"shards {degree} x copies {size // degree}"


def _join() -> None:
    """Initializes torch.distributed where nobody has."""
    if dist.is_initialized():
        return
    backend = importlib.import_module("smdistributed.shared.backend")
    name = backend.NAME if backend.register() else "cpu:gloo,cuda:nccl" if backend.has_nccl() else "gloo"
    if "RANK" not in os.environ:  # no launcher: one rank
        dist.init_process_group(name, store=HashStore(), rank=0, world_size=1)
    else:
        dist.init_process_group(name)


def _mesh(size: int, degree: int) -> DeviceMesh | None:
    if degree == 0:
        return None
    kind = "cuda" if torch.cuda.is_available() and torch.version.cuda else "cpu"
    return init_device_mesh(kind, (size // degree, degree), mesh_dim_names=("replicate", "shard"))
