"""The errors of this library."""

from __future__ import annotations


class SMPConfigError(ValueError):
    """A parameter of the configuration is wrong, or doesn't fit the world of ranks."""


class SMPUnsupportedError(NotImplementedError):
    """AWS's library has what was asked for; this one doesn't."""


class SMPNotInitializedError(RuntimeError):
    """Something needs ``tsm.init()`` first."""
