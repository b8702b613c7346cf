"""The errors of this library that any script may catch; sagemaker-training tells them from a script's own by name."""

from __future__ import annotations


class SMPError(Exception):
    """An error of this library."""


class SMPConfigError(SMPError, ValueError):
    """A parameter of the configuration is wrong, or doesn't fit the world of ranks."""


class SMPUnsupportedError(SMPError, NotImplementedError):
    """AWS's library has what was asked for; this one doesn't yet."""


class SMPNotInitializedError(SMPError, RuntimeError):
    """Something needs ``smp.init()`` first."""
