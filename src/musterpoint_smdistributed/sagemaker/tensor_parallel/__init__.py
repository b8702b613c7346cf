"""Tensor parallelism: how layers are divided, and the class by which scripts name them."""

from . import transformer
from .dividing import (
    divided_as,
    on_tensor_ranks,
    parallelize,
    placements_of,
    shared_out,
    shared_out_as,
    without_wrappers,
)

__all__ = [
    "divided_as", "on_tensor_ranks", "parallelize", "placements_of", "shared_out", "shared_out_as", "transformer",
    "without_wrappers",
]  # fmt: skip
