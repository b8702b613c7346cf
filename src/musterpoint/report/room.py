"""Room on the disk for the failure reason, set aside before the user's program can fill it."""

from __future__ import annotations

import os

from musterpoint.job.model import Paths

RESERVED = 4096
"""Bytes set aside, so that a full disk can't silence the reason."""


def reserve(paths: Paths) -> None:
    """Sets the room aside, while there is some. Call it before the user's program runs."""
    if not paths.failure:
        return
    try:
        os.makedirs(os.path.dirname(paths.failure), exist_ok=True)
        fd = os.open(place(paths.failure), os.O_WRONLY | os.O_CREAT | getattr(os, "O_CLOEXEC", 0), 0o644)
        try:
            _take(fd)
        finally:
            os.close(fd)
    except OSError:
        pass  # a disk that is full already: the report will say so if it has something to write


def _take(fd: int) -> None:
    """Blocks of the disk for :data:`RESERVED` bytes, without waiting for the disk where the file system can."""
    try:
        os.posix_fallocate(fd, 0, RESERVED)
    except (AttributeError, OSError):
        os.write(fd, b" " * RESERVED)
        os.fsync(fd)


def place(failure: str) -> str:
    """The file that holds the room, beside the failure file; empty where there is none."""
    return os.path.join(os.path.dirname(failure), ".failure.reserved") if failure else ""
