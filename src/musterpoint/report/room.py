"""Room on the disk for the files that tell how the job ended, set aside before the user's program can fill it."""

from __future__ import annotations

import os

from musterpoint.job.model import Paths

RESERVED = 4096
"""Bytes set aside for each file, so that a full disk can't silence it."""


def reserve(paths: Paths) -> None:
    """Sets room aside for the failure file and ``outcome.json``, while there is some. Call it before the user's
    program runs.
    """
    for path in (paths.failure, outcome_of(paths)):
        take(path, RESERVED)


def outcome_of(paths: Paths) -> str:
    """Where ``outcome.json`` goes: beside the failure file, else into the output directory; empty where there is
    neither.
    """
    beside = os.path.dirname(paths.failure) or paths.output
    return os.path.join(beside, "outcome.json") if beside else ""


def take(path: str, size: int) -> None:
    """Sets ``size`` bytes aside for the file at ``path`` (empty: none)."""
    if not path:
        return
    try:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        fd = os.open(place(path), os.O_WRONLY | os.O_CREAT | getattr(os, "O_CLOEXEC", 0), 0o644)
        try:
            _take(fd, size)
        finally:
            os.close(fd)
    except OSError:
        pass  # a disk that is full already: the report will say so if it has something to write


def _take(fd: int, size: int) -> None:
    """Blocks of the disk for ``size`` bytes, without waiting for the disk where the file system can."""
    try:
        os.posix_fallocate(fd, 0, size)
    except (AttributeError, OSError):
        os.write(fd, b" " * size)
        os.fsync(fd)


def place(path: str) -> str:
    """The file that holds the room for the one at ``path``, beside it; empty where there is none."""
    folder, name = os.path.split(path)
    return os.path.join(folder, f".{name}.reserved") if path else ""
