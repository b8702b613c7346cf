"""Distributed checkpoints."""

from . import checkpoint

__all__ = ["checkpoint"]
