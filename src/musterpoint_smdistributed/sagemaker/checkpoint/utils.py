"""Keeps the newest folders of checkpoints."""

from __future__ import annotations

import os
import re
import shutil
from typing import Any, Callable

from ..distributed.checkpoint.places import STAGED, unfinished
from ..logger import get_logger


def _last_int(name: str) -> tuple[int, str]:
    numbers = re.findall(r"\d+", name)
    return (int(numbers[-1]) if numbers else -1, name)


SORT_BY_LAST_INT: Callable[[str], Any] = _last_int
"""By the last number in a name: ``llama-900steps`` comes before ``llama-1000steps``."""


def limit_num_subdirs(
    root: str, num_kept: int, sort_fn: Callable[[str], Any] | None = None, regex: str | None = None, log: bool = True
) -> list[str]:
    """Removes all but the last ``num_kept`` folders in ``root`` whose names ``regex`` matches; returns those.

    Checkpoints that a job didn't write to the end don't count, and go with those that are older than what stays.

    Args:
        num_kept: with less than 1 all stay.
        sort_fn: the key by which they are sorted; by their names where it is None.
        log: whether this rank removes and says so; the others do nothing.
    """
    if num_kept < 1 or not log or not os.path.isdir(root):
        return []
    folders = (each.name for each in os.scandir(root) if each.is_dir() and not each.name.endswith(STAGED))
    names = sorted((name for name in folders if regex is None or re.match(regex, name)), key=sort_fn)
    whole = [name for name in names if not unfinished(os.path.join(root, name))]
    old = names[: names.index(whole[-num_kept])] if len(whole) > num_kept else []
    for name in old:
        get_logger().info("removing the checkpoint %s: the newest %s stay", os.path.join(root, name), num_kept)
        shutil.rmtree(os.path.join(root, name), ignore_errors=True)
    return old
