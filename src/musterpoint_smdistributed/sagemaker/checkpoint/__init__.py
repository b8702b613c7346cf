"""Folders of checkpoints."""

from . import constants, utils

__all__ = ["constants", "utils"]
