"""What a check asks of the system beside files: sizes of file systems, limits of the process, the clock."""

from __future__ import annotations

import os
import time
from typing import NamedTuple

from musterpoint.base.posix import resource


class Space(NamedTuple):
    """A file system: bytes, free inodes (-1: it doesn't count them), and whether it is mounted read-only."""

    total: int = 0
    free: int = 0
    inodes: int = -1
    read_only: bool = False


UNLIMITED = -1


class System:
    """This machine. ``root``: the folder that stands for ``/`` where files of the kernel are read."""

    def __init__(self, root: str = "/") -> None:
        self.root = root

    def path(self, path: str) -> str:
        """``path`` below the root."""
        return os.path.join(self.root, path.lstrip("/"))

    def space(self, path: str) -> Space | None:
        """The file system of ``path``; None where there is none."""
        try:
            found = os.statvfs(self.path(path))
        except (OSError, AttributeError):  # Windows has no statvfs
            return None
        inodes = found.f_favail if found.f_files else -1
        return Space(found.f_frsize * found.f_blocks, found.f_frsize * found.f_bavail, inodes, bool(found.f_flag & 1))

    def can_write(self, path: str) -> bool:
        return os.access(self.path(path), os.W_OK | os.X_OK)

    def limit(self, name: str) -> int:
        """The soft limit ``RLIMIT_<name>`` of this process; :data:`UNLIMITED` where there is none."""
        which = getattr(resource, "RLIMIT_" + name, None)
        if which is None:
            return UNLIMITED
        value = resource.getrlimit(which)[0]
        return UNLIMITED if value == resource.RLIM_INFINITY else int(value)

    def time(self) -> float:
        """Unix time."""
        return time.time()

    def is_root(self) -> bool:
        return hasattr(os, "geteuid") and os.geteuid() == 0
