"""Distributed checkpoints."""

from . import checkpoint, fsdp

__all__ = ["checkpoint", "fsdp"]
