"""AWS's model-parallel library for TensorFlow 2 by its name: microbatches on one partition. Independent of AWS.

A model isn't divided over ranks here; more than one partition is refused. Scripts import it ``as smp``.
"""

try:
    import tensorflow  # type: ignore[import-untyped,import-not-found,unused-ignore]  # noqa: F401
except ImportError as error:
    raise ImportError(
        "smdistributed.modelparallel.tensorflow needs TensorFlow 2, which this Python doesn't have: install it, or "
        "import smdistributed.modelparallel.torch with PyTorch",
        name=error.name,
    ) from None

from .model import CheckpointManager, DistributedModel, partition, register_post_partition_hook
from .step import StepOutput, step
from .world import (
    barrier,
    dp_rank,
    dp_size,
    get_dp_group,
    get_mp_group,
    get_pp_group,
    init,
    is_initialized,
    local_rank,
    local_size,
    mp_rank,
    mp_size,
    num_microbatches,
    pp_rank,
    pp_size,
    rank,
    rdp_rank,
    rdp_size,
    size,
    tp_rank,
    tp_size,
)

__all__ = [
    "CheckpointManager", "DistributedModel", "StepOutput", "barrier", "dp_rank", "dp_size", "get_dp_group",
    "get_mp_group", "get_pp_group", "init", "is_initialized", "local_rank", "local_size", "mp_rank", "mp_size",
    "num_microbatches", "partition", "pp_rank", "pp_size", "rank", "rdp_rank", "rdp_size",
    "register_post_partition_hook", "size", "step", "tp_rank", "tp_size",
]  # fmt: skip
