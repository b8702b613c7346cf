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

from . import operations
from .gradients import DistributedGradientTape, DistributedOptimizer
from .operations import *  # noqa: F403

__all__ = ["DistributedGradientTape", "DistributedOptimizer", *operations.__all__]
