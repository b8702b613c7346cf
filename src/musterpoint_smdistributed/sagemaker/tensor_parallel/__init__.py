"""Tensor parallelism: how layers are divided, and the class by which scripts name them."""

from . import transformer

__all__ = ["transformer"]
