"""The errors of this library, as scripts and sagemaker-training import them."""

from ..backend.exceptions import SMPConfigError, SMPError, SMPNotInitializedError, SMPUnsupportedError

__all__ = ["SMPConfigError", "SMPError", "SMPNotInitializedError", "SMPUnsupportedError"]
