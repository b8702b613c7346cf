"""Tensor parallelism: how layers are divided, and the class by which scripts name them."""

from . import transformer
from .dividing import (
    names_of_divided,
    on_tensor_ranks,
    parallelize,
    shared_out,
    shared_out_as,
    without_wrappers,
)

__all__ = [
    "names_of_divided",
    "on_tensor_ranks",
    "parallelize",
    "shared_out",
    "shared_out_as",
    "transformer",
    "without_wrappers",
]
