"""The same for ``model.fit``: scripts import it ``as dist``."""

from .. import Compression, DistributedOptimizer, ReduceOp, broadcast, broadcast_variables, init, shutdown
from ..operations import local_rank, local_size, rank, size
from . import callbacks

__all__ = [
    "Compression", "DistributedOptimizer", "ReduceOp", "broadcast", "broadcast_variables", "callbacks", "init",
    "local_rank", "local_size", "rank", "shutdown", "size",
]  # fmt: skip
