"""The world that ``smp.init`` makes: configuration, topology, this rank's process groups.

Within this package: ``from .state import state``; ``smp.state`` is that object as well.
"""

from __future__ import annotations

import os
import sys
from typing import Any, Callable, Mapping, NamedTuple

import torch.distributed as dist

from ...shared import backend, rank_environment
from .. import __version__
from ..backend.exceptions import SMPConfigError, SMPNotInitializedError
from . import log
from .config import Config, read
from .topology import KINDS, Kind, Topology

__all__ = [
    "dp_rank", "dp_size", "get_dp_group", "get_dp_process_group", "get_mp_group", "get_mp_process_group",
    "get_pp_group", "get_pp_process_group", "get_rdp_group", "get_rdp_process_group", "get_tp_group",
    "get_tp_process_group", "get_world_process_group", "is_initialized", "is_tracing", "local_rank", "local_size",
    "mp_rank", "mp_size", "pp_rank", "pp_size", "rank", "rdp_rank", "rdp_size", "size", "state", "tp_rank", "tp_size",
]  # fmt: skip


def rank() -> int:
    """This process among all."""
    return state.world.rank


def size() -> int:
    """How many processes there are."""
    return state.world.topology.world


def local_rank() -> int:
    """This process among those of its host."""
    return state.world.local_rank


def local_size() -> int:
    """How many processes this host has."""
    return state.world.local_size


def get_world_process_group() -> Any:
    """Torch's group of all processes."""
    return dist.group.WORLD if state.world else None


def _of(kind: Kind) -> tuple[Callable[[], int], Callable[[], int], Callable[[], list[int]], Callable[[], Any]]:
    """This rank's place in its group of a kind, the group's size, its global ranks, and torch's group."""
    return (
        lambda: state.group(kind).rank,
        lambda: state.group(kind).size,
        lambda: list(state.group(kind).ranks),
        lambda: state.group(kind).process_group,
    )


mp_rank, mp_size, get_mp_group, get_mp_process_group = _of("mp")
dp_rank, dp_size, get_dp_group, get_dp_process_group = _of("dp")
pp_rank, pp_size, get_pp_group, get_pp_process_group = _of("pp")
tp_rank, tp_size, get_tp_group, get_tp_process_group = _of("tp")
rdp_rank, rdp_size, get_rdp_group, get_rdp_process_group = _of("rdp")


class Group(NamedTuple):
    """One group of ranks that this rank is in.

    ranks: global ranks, ascending.
    rank: this rank's own place among them.
    process_group: torch's; tensors on CPUs work with it as well as those on GPUs.
    """

    ranks: tuple[int, ...]
    rank: int
    process_group: Any

    @property
    def size(self) -> int:
        return len(self.ranks)


class World(NamedTuple):
    """What ``smp.init`` found and made; it doesn't change afterwards."""

    cfg: Config
    topology: Topology
    rank: int
    local_rank: int
    local_size: int
    groups: Mapping[Kind, Group]


class ModuleManager:
    """What scripts and libraries register for modules.

    ``translate_functions``: pairs of functions (to another library's state dict, and back).
    """

    def __init__(self) -> None:
        self.translate_functions: list[tuple[Callable[..., Any], Callable[..., Any]]] = []


def _wait(work: Any, kind: Kind | None) -> None:
    with log.waiting("smp.barrier, smp.allgather, smp.recv_from or the like"):
        work.wait()


class State:
    """All that this process knows; ``world`` from ``smp.init`` on, the rest as the script goes on.

    model, optimizer: the script's DistributedModel and its DistributedOptimizer, or None.
    tracing: whether the model runs only to be looked at.
    wait: how a rank waits for others in a barrier or an exchange of objects: called with torch's Work, and with the
        kind of the group where all of one take part. The pipeline replaces it to answer requests meanwhile.
    """

    is_open_shim = True

    def __init__(self) -> None:
        self._world: World | None = None
        self.module_manager = ModuleManager()
        self.model: Any = None
        self.optimizer: Any = None
        self.tracing = False
        self.wait: Callable[[Any, Kind | None], None] = _wait

    @property
    def initialized(self) -> bool:
        return self._world is not None

    @property
    def world(self) -> World:
        """Raises SMPNotInitializedError before ``smp.init``."""
        if self._world is None:
            raise SMPNotInitializedError("smdistributed.modelparallel isn't initialized: call smp.init() first")
        return self._world

    @property
    def cfg(self) -> Config:
        return self.world.cfg

    def group(self, kind: Kind) -> Group:
        return self.world.groups[kind]


state = State()


def init(config: Mapping[str, Any] | None = None) -> None:
    """Reads the configuration, joins torch.distributed's ranks where the script hasn't, and makes the groups.

    A second call changes nothing, with a warning where it asks for something else.

    Raises:
        SMPConfigError: a parameter is wrong, or the degrees don't fit the number of ranks.
        SMPUnsupportedError: a parameter asks for what isn't supported yet.
    """
    if state.initialized:
        given = (config or {}).items()
        other = [f"{name}={value!r}" for name, value in given if getattr(state.cfg, name, None) != value]
        if other:
            log.warn(f"smp.init was called before: {', '.join(other)} of this call is not used")
        return
    port_given = bool(os.environ.get("MASTER_PORT"))
    own = rank_environment.place(os.environ)
    cfg = read(os.environ, sys.argv[1:], config)
    size = dist.get_world_size() if dist.is_initialized() else own.size
    topology = _topology(cfg, size)
    _join(cfg, port_given)
    rank = dist.get_rank()
    state._world = World(cfg, topology, rank, own.local_rank, own.local_size, _groups(topology, rank))
    _introduce(state.world)


def is_initialized() -> bool:
    """Whether ``smp.init`` has been called."""
    return state.initialized


def is_tracing() -> bool:
    """Whether the model runs only to be looked at, and not to compute."""
    return state.tracing


def _topology(cfg: Config, size: int) -> Topology:
    degree = cfg.sharded_data_parallel_degree
    if size % degree:
        raise SMPConfigError(
            f"{cfg.shown('sharded_data_parallel_degree')} doesn't divide the job's world size {size}: start a multiple "
            f"of {degree} ranks, or change the degree"
        )
    try:
        return Topology(size, cfg.pipeline_parallel_degree, cfg.tensor_parallel_degree, cfg.placement_strategy)
    except ValueError as error:
        raise SMPConfigError(f"{error} ({cfg.where('pipeline_parallel_degree')})") from None


def _join(cfg: Config, port_given: bool) -> None:
    """Initializes torch.distributed where nobody has; ``port_given``: whoever started the ranks has said a port."""
    if dist.is_initialized():
        return
    name = cfg.ddp_dist_backend
    if name == "nccl" and not backend.has_nccl():
        log.warn(f"{cfg.shown('ddp_dist_backend')}: there is no GPU here, so the ranks use gloo")
    if cfg.ddp_port and not port_given and "RANK" in os.environ:
        os.environ["MASTER_PORT"] = str(cfg.ddp_port)
    backend.join("gloo" if name == "gloo" else backend.default())


def _groups(topology: Topology, rank: int) -> dict[Kind, Group]:
    """This rank's group of each kind. Kinds whose groups are the same share one process group.

    Each rank makes its own groups only, one of a kind after the other: a world of thousands has as many tensor-parallel
    groups, and torch would have every rank wait for each of them.
    """
    made: dict[tuple[tuple[int, ...], ...], Any] = {}
    world: Any = dist.group.WORLD
    if any(device.type == "cpu" for device in world._device_types):  # NCCL's group can't take tensors on CPUs
        made[topology.groups("world")] = world
    name = "gloo" if dist.get_backend() == "gloo" else backend.default()
    found: dict[Kind, Group] = {}
    for kind in KINDS:
        all_of_kind = topology.groups(kind)
        ranks = topology.group(kind, rank)
        if all_of_kind not in made:
            made[all_of_kind] = dist.new_group(list(ranks), backend=name, use_local_synchronization=True)
        found[kind] = Group(ranks, ranks.index(rank), made[all_of_kind])
    return found


def _introduce(world: World) -> None:
    cfg = world.cfg
    log.get_logger()  # on every rank: scripts write to smp.logger
    sharing = f"tensors shared by {cfg.tensor_parallel_degree} x " if cfg.tensor_parallel_degree > 1 else ""
    log.say(
        f"musterpoint's smdistributed.modelparallel {__version__}: world size {world.topology.world} = partitions "
        f"{cfg.pipeline_parallel_degree} x {sharing}replicas {world.topology.rdp}, placement {cfg.placement_strategy}, "
        f"microbatches {cfg.microbatches}, pipeline {cfg.pipeline}"
    )
    if cfg.unknown:
        log.warn(
            "; ".join(
                f"{name} ({cfg.where(name)}) is no parameter that musterpoint's smdistributed.modelparallel knows: "
                f"kept as smp.state.cfg.{name}, and without effect"
                for name in cfg.unknown
            )
        )
    if cfg.sharded_data_parallel_degree > 1:
        clipped = f"clipped at a norm of {cfg.sdp_gradient_clipping:g} (sdp_gradient_clipping; 0 switches it off)"
        log.say(
            f"sharded data parallelism: shards {cfg.sharded_data_parallel_degree} x copies "
            f"{world.topology.rdp // cfg.sharded_data_parallel_degree}; gradients are "
            + (clipped if cfg.sdp_gradient_clipping else "not clipped")
        )
    for line in cfg.without_effect():
        log.warn(line)
    if world.topology.rdp > 1 and not cfg.ddp:
        log.warn(f"{world.topology.rdp} replicas, but {cfg.shown('ddp')}: gradients aren't averaged over them")
