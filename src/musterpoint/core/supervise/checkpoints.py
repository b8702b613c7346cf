"""Whether an attempt left something new where checkpoints go."""

from __future__ import annotations

import os
import stat
import time
from typing import Iterable

from musterpoint.core.channel.topics.attempts import Progress

MOST_ENTRIES = 20_000
MOST_SECONDS = 2.0
"""A directory that is larger, or slower to read, says nothing: the channel's beats have to go on."""

Fingerprint = frozenset[tuple[str, int, int]]


def fingerprint(directories: Iterable[str]) -> Fingerprint | None:
    """The files there: path, size and time of the last change (ns). None: they are too many, or take too long."""
    found: set[tuple[str, int, int]] = set()
    until = time.monotonic() + MOST_SECONDS
    for directory in filter(None, directories):
        for folder, folders, names in os.walk(directory):
            if len(found) + len(names) + len(folders) > MOST_ENTRIES or time.monotonic() > until:
                return None
            found.update(filter(None, (_row(os.path.join(folder, name)) for name in names)))
    return frozenset(found)


def _row(path: str) -> tuple[str, int, int] | None:
    try:
        facts = os.lstat(path)
    except OSError:
        return None
    return None if stat.S_ISDIR(facts.st_mode) else (path, facts.st_size, facts.st_mtime_ns)


def progress(before: Fingerprint | None, after: Fingerprint | None) -> Progress:
    """What became of the directories: a new or changed file is progress, one that is gone isn't.

    Unknown where nothing is there: the job may keep its checkpoints elsewhere.
    """
    if before is None or not after:
        return "unknown"
    return "made" if after - before else "none"
