"""Data parallelism with PyTorch. Importing :mod:`.torch_smddp` makes the backend ``smddp`` known."""

from .distributed import get_local_rank, get_rank, get_world_size

__all__ = ["get_local_rank", "get_rank", "get_world_size"]
