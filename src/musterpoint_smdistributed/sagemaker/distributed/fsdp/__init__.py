"""Models that torch's FSDP has in shards."""

from . import checkpoint

__all__ = ["checkpoint"]
