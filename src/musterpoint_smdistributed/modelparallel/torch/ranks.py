"""The functions that say which rank this is: one of all, and one of each group."""

from __future__ import annotations

from typing import Any, Callable

import torch.distributed as dist

from .state import state
from .topology import Kind


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
