"""``DistributedDataParallel``, which scripts import from here or from :mod:`.distributed`."""

from .distributed import DistributedDataParallel

__all__ = ["DistributedDataParallel"]
