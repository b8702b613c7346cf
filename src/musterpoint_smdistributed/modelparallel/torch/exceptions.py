"""The errors of this library, as scripts and sagemaker-training import them."""

from ..backend.exceptions import SMPConfigError, SMPError, SMPNotInitializedError, SMPUnsupportedError
from .checkpoint_folders import SMPCheckpointError
from .errors import SMPPeerLostError, SMPRemoteError, SMPStalledError, SMPStepError

__all__ = [
    "SMPCheckpointError", "SMPConfigError", "SMPError", "SMPNotInitializedError", "SMPPeerLostError",
    "SMPRemoteError", "SMPStalledError", "SMPStepError", "SMPUnsupportedError",
]  # fmt: skip
