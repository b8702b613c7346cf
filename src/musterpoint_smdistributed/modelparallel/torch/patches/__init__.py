"""Replacements of torch's functions."""

from . import checkpoint

__all__ = ["checkpoint"]
