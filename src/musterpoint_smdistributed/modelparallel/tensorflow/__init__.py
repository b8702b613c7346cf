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

from . import world
from .model import CheckpointManager, DistributedModel, partition, register_post_partition_hook
from .step import StepOutput, step
from .world import *  # noqa: F403

__all__ = [
    "CheckpointManager", "DistributedModel", "StepOutput", "partition", "register_post_partition_hook", "step",
    *world.__all__,
]  # fmt: skip
