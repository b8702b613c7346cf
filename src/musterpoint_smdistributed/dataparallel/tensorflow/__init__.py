"""AWS's data-parallel library for TensorFlow 2 by its name: on Horovod where it is installed, else on TensorFlow's own
collective operations. Independent of AWS.

Scripts import it ``as sdp``. :mod:`smdistributed.dataparallel.tensorflow.keras` is what ``model.fit`` needs.
"""

try:
    import tensorflow  # type: ignore[import-untyped,import-not-found,unused-ignore]  # noqa: F401
except ImportError as error:
    raise ImportError(
        "smdistributed.dataparallel.tensorflow needs TensorFlow 2, which this Python doesn't have: install it, or "
        "import smdistributed.dataparallel.torch.torch_smddp with PyTorch",
        name=error.name,
    ) from None

from .gradients import DistributedGradientTape, DistributedOptimizer
from .operations import (
    BroadcastGlobalVariablesHook,
    Compression,
    ReduceOp,
    allreduce,
    broadcast,
    broadcast_global_variables,
    broadcast_variables,
    get_worker_comm,
    init,
    local_rank,
    local_size,
    oob_allreduce,
    overlap,
    rank,
    shutdown,
    size,
)

__all__ = [
    "BroadcastGlobalVariablesHook", "Compression", "DistributedGradientTape", "DistributedOptimizer", "ReduceOp",
    "allreduce", "broadcast", "broadcast_global_variables", "broadcast_variables", "get_worker_comm", "init",
    "local_rank", "local_size", "oob_allreduce", "overlap", "rank", "shutdown", "size",
]  # fmt: skip
