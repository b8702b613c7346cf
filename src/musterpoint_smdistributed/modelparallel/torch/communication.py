"""Objects from rank to rank, and barriers. They travel as bytes over gloo, whatever the tensors use.

As in AWS's library, ``broadcast`` is called by the sender alone; each receiver calls ``recv_from``.
"""

from __future__ import annotations

import enum
import functools
import pickle
from typing import Any, Sequence

import torch
import torch.distributed as dist

from .state import Group, state

__all__ = [
    "DP_GROUP", "DP_RANK", "MP_GROUP", "MP_RANK", "PP_GROUP", "RDP_GROUP", "TP_GROUP", "WORLD", "WORLD_RANK",
    "CommGroup", "RankType", "allgather", "barrier", "broadcast", "dp_barrier", "mp_barrier", "pp_barrier",
    "rdp_barrier", "recv_from", "send", "tp_barrier",
]  # fmt: skip


class CommGroup(enum.Enum):
    """Which of this rank's groups is meant."""

    WORLD = "world"
    MP_GROUP = "mp"
    DP_GROUP = "dp"
    PP_GROUP = "pp"
    TP_GROUP = "tp"
    RDP_GROUP = "rdp"


class RankType(enum.Enum):
    """What a rank number counts: all processes, or those of one of this rank's groups."""

    WORLD_RANK = "world"
    MP_RANK = "mp"
    DP_RANK = "dp"
    PP_RANK = "pp"
    TP_RANK = "tp"
    RDP_RANK = "rdp"


WORLD, MP_GROUP, DP_GROUP, PP_GROUP, TP_GROUP, RDP_GROUP = CommGroup
WORLD_RANK, MP_RANK, DP_RANK, PP_RANK, TP_RANK, RDP_RANK = RankType


def broadcast(obj: Any, group: CommGroup = WORLD) -> None:
    """Sends ``obj`` to all others of the group; returns when each has received it with :func:`recv_from`."""
    own = _group(group)
    _send(obj, [rank for rank in own.ranks if rank != state.world.rank])


def send(obj: Any, dest_rank: int, rank_type: RankType = WORLD_RANK) -> None:
    """Sends ``obj`` to one rank; returns when that has received it with :func:`recv_from`.
    Raises ValueError: there is no such rank, or it is this one."""
    _send(obj, [_peer(dest_rank, rank_type)])


def recv_from(src_rank: int, rank_type: RankType = WORLD_RANK) -> Any:
    """The object that ``src_rank`` sends to this rank, or to a group that this rank is in.
    Raises ValueError: there is no such rank, or it is this one."""
    source = _peer(src_rank, rank_type)
    length, world = torch.empty(1, dtype=torch.int64), state.group("world").process_group
    _wait(dist.irecv(length, source, group=world))
    data = torch.empty(int(length), dtype=torch.uint8)
    _wait(dist.irecv(data, source, group=world))
    return pickle.loads(data.numpy().tobytes())


def allgather(obj: Any, group: CommGroup = WORLD) -> list[Any]:
    """What each rank of the group gave, by its rank in the group."""
    own = _group(group)
    data = _bytes(obj)
    length = torch.tensor([data.numel()])
    lengths = [torch.empty_like(length) for _ in own.ranks]
    _wait(dist.all_gather(lengths, length, group=own.process_group, async_op=True), group)
    longest = max(int(each) for each in lengths)
    padded = torch.zeros(longest, dtype=torch.uint8)
    padded[: data.numel()] = data
    parts = [torch.empty_like(padded) for _ in own.ranks]
    _wait(dist.all_gather(parts, padded, group=own.process_group, async_op=True), group)
    return [pickle.loads(part[: int(each)].numpy().tobytes()) for part, each in zip(parts, lengths)]


def barrier(group: CommGroup = WORLD) -> None:
    """Returns when every rank of the group has called it."""
    # a sum, since torch's barrier takes the GPU where there is one
    _wait(dist.all_reduce(torch.zeros(1), group=_group(group).process_group, async_op=True), group)


mp_barrier = functools.partial(barrier, MP_GROUP)
dp_barrier = functools.partial(barrier, DP_GROUP)
pp_barrier = functools.partial(barrier, PP_GROUP)
tp_barrier = functools.partial(barrier, TP_GROUP)
rdp_barrier = functools.partial(barrier, RDP_GROUP)


def _group(group: CommGroup) -> Group:
    if not isinstance(group, CommGroup):
        raise TypeError(f"group {group!r}: expected one of smp.CommGroup, such as smp.DP_GROUP")
    return state.group(group.value)


def _peer(rank: int, rank_type: RankType) -> int:
    """The global rank."""
    if not isinstance(rank_type, RankType):
        raise TypeError(f"rank_type {rank_type!r}: expected one of smp.RankType, such as smp.RankType.DP_RANK")
    ranks = state.group(rank_type.value).ranks
    if not 0 <= rank < len(ranks):
        raise ValueError(f"rank {rank} ({rank_type.name}): expected 0 to {len(ranks) - 1}")
    if ranks[rank] == state.world.rank:
        raise ValueError(f"rank {rank} ({rank_type.name}) is this rank itself")
    return ranks[rank]


def _send(obj: Any, ranks: Sequence[int]) -> None:
    data = _bytes(obj)
    for tensor in (torch.tensor([data.numel()]), data):
        for work in [dist.isend(tensor, rank, group=state.group("world").process_group) for rank in ranks]:
            _wait(work)


def _bytes(obj: Any) -> torch.Tensor:
    return torch.frombuffer(bytearray(pickle.dumps(obj, protocol=pickle.HIGHEST_PROTOCOL)), dtype=torch.uint8)


def _wait(work: Any, group: CommGroup | None = None) -> None:
    if work is not None:  # None: torch leaves out ranks that aren't in the group
        state.wait(work, group.value if group is not None else None)
