"""The functions that scripts for the library's versions before 1.4 call, over torch.distributed.

Names, arguments and defaults are theirs; each does what the function of that name in torch.distributed does.
"""

from __future__ import annotations

import enum
import os
from typing import Any, Sequence

import torch
import torch.distributed as dist

from ...shared.backend import NAME
from . import torch_smddp  # noqa: F401 - registers the backend


class ReduceOp(enum.Enum):
    """How a collective combines tensors. AVERAGE, for floating point, is the sum divided by the number of ranks."""

    AVERAGE = "average"
    SUM = "sum"
    MIN = "min"
    MAX = "max"


class group:
    """``group.WORLD``: all ranks."""

    WORLD: dist.ProcessGroup | None = None


_OPERATIONS = {
    ReduceOp.AVERAGE: dist.ReduceOp.SUM,
    ReduceOp.SUM: dist.ReduceOp.SUM,
    ReduceOp.MIN: dist.ReduceOp.MIN,
    ReduceOp.MAX: dist.ReduceOp.MAX,
}


is_initialized, get_rank, get_world_size = dist.is_initialized, dist.get_rank, dist.get_world_size
all_gather, barrier = dist.all_gather, dist.barrier


def is_available() -> bool:
    """Whether a launcher started this process as one of several."""
    return "RANK" in os.environ and "WORLD_SIZE" in os.environ


def init_process_group(*args: Any, **kwargs: Any) -> None:
    """Joins all ranks, once. Arguments are taken and don't matter, as in AWS's library."""
    if not dist.is_initialized():
        dist.init_process_group(NAME)


def get_local_rank() -> int:
    """This rank's place among those of its host. Raises RuntimeError: no launcher told this process."""
    try:
        return int(os.environ["LOCAL_RANK"])
    except (KeyError, ValueError):
        raise RuntimeError(
            f"LOCAL_RANK={os.environ.get('LOCAL_RANK')!r}: expected a number, which the launcher of this process sets "
            "(torchrun, mpirun)"
        ) from None


def all_reduce(
    tensor: torch.Tensor, op: Any = ReduceOp.SUM, group: dist.ProcessGroup | None = group.WORLD, async_op: bool = False
) -> Any:
    """Combines ``tensor`` over all ranks, in place. A handle to wait for if ``async_op``, else None."""
    if op is ReduceOp.AVERAGE:  # divided first, as DDP does: it is the average however the caller waits for it
        tensor.div_(dist.get_world_size(group))
    return dist.all_reduce(tensor, _OPERATIONS.get(op, op), group, async_op)


def broadcast(
    tensor: torch.Tensor, src: int = 0, group: dist.ProcessGroup | None = group.WORLD, async_op: bool = False
) -> Any:
    return dist.broadcast(tensor, src, group, async_op)


def all_to_all_single(
    output_t: torch.Tensor,
    input_t: torch.Tensor,
    output_split_sizes: Sequence[int] | None = None,
    input_split_sizes: Sequence[int] | None = None,
    group: dist.ProcessGroup | None = group.WORLD,
    async_op: bool = False,
) -> Any:
    return dist.all_to_all_single(output_t, input_t, output_split_sizes, input_split_sizes, group, async_op)
