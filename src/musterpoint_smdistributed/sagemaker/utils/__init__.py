"""Functions for scripts."""

from . import module_utils, process_group_utils, utils

__all__ = ["module_utils", "process_group_utils", "utils"]
