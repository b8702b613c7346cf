"""Modules of the library."""

from . import attn

__all__ = ["attn"]
