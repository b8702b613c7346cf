"""Mixtures of experts."""

from . import moe_config

__all__ = ["moe_config"]
