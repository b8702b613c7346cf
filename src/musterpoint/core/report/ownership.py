"""Gives files that a job wrote as root to the owner of its input: a person whose machine runs the containers.

Without that, what the SDKs' local modes and ``docker run -v`` leave on a person's disk can't be deleted by them. On a
platform that makes the input as root itself nothing is changed.
"""

from __future__ import annotations

import os
import stat
from typing import Iterable

from musterpoint.core.job.model import Paths

ROOT = 0
SHARED = "shared"
"""SDK v2's local mode mounts ``/opt/ml/shared`` on all hosts."""


def give_back(paths: Paths) -> int:
    """Gives what root owns in the job's directories to the owner of its input; returns how many entries.

    Only directories below the platform's own are changed, as a checkpoint path may be anywhere. Symbolic links are
    changed themselves, never what they lead to. What can't be changed stays as it is.
    """
    owner = _owner(paths.input_config) if paths.base and os.geteuid() == ROOT else None
    if owner is None or owner[0] == ROOT:
        return 0
    inside = os.path.join(paths.base, "")
    folders = (paths.model, paths.output, paths.checkpoints, paths.code, inside + SHARED)
    return sum(_give(paths.base, folder[len(inside) :], owner) for folder in folders if folder.startswith(inside))


def _owner(path: str) -> tuple[int, int] | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_uid, found.st_gid


def _give(base: str, folder: str, owner: tuple[int, int]) -> int:
    """Changes the owner of what is in ``folder``, a path below ``base`` without links and ``..``."""
    given = 0
    fd = -1
    try:
        fd = os.open(base, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        for name in folder.split("/"):
            if name == "..":
                return 0
            above, fd = fd, os.open(name or ".", os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=fd)
            os.close(above)
        for _, folders, files, here in os.fwalk(".", dir_fd=fd):
            given += _give_entries((".", *folders, *files), here, owner)
    except (OSError, RecursionError):
        pass  # not there, a mount that not even root may list, or a tree too deep: it stays as it is
    finally:
        if fd >= 0:
            os.close(fd)
    return given


def _give_entries(names: Iterable[str], fd: int, owner: tuple[int, int]) -> int:
    given = 0
    for name in names:
        try:
            found = os.stat(name, dir_fd=fd, follow_symlinks=False)
            grants = stat.S_ISREG(found.st_mode) and found.st_mode & (stat.S_ISUID | stat.S_ISGID)
            if found.st_uid == ROOT and not grants:
                os.chown(name, *owner, dir_fd=fd, follow_symlinks=False)
                given += 1
        except OSError:
            continue  # gone meanwhile, or a read-only mount
    return given
