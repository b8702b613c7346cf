"""Looks for lock files that killed builds of torch extensions left behind.

A program that compiles an extension on first use (DeepSpeed does) makes a file ``lock`` beside it and removes it after
the build. A killed build leaves the file, and every later run waits for ever, silently (``torch.utils.file_baton``).
A running build has the file open.

The search would delay the ranks, so it begins when they run; the warning still comes in time.
"""

from __future__ import annotations

import os
from typing import Iterator, Mapping

from musterpoint.core.supervise.watcher import Watched, WatchedJob, Watcher


def folder_of(environ: Mapping[str, str]) -> str:
    """Where torch builds extensions: ``TORCH_EXTENSIONS_DIR``, else in the cache directory (``cpp_extension``)."""
    cache = environ.get("XDG_CACHE_HOME") or os.path.join(environ.get("HOME", "/"), ".cache")
    return environ.get("TORCH_EXTENSIONS_DIR") or os.path.join(cache, "torch_extensions")


def warnings(environ: Mapping[str, str], proc: str = "/proc") -> list[str]:
    """A sentence for each lock that no process of this host has open; removing it is the user's decision."""
    found = list(_locks(folder_of(environ), 2))
    held = _open_files(proc) if found else set()
    return [
        f"{path} belongs to no process here: a build that was killed left it, and a program that needs the extension "
        "will wait for it for ever; remove it unless another host is building there now"
        for path in found
        if os.path.realpath(path) not in held
    ]


def _locks(folder: str, depth: int) -> Iterator[str]:
    """The lock files below ``folder``; torch's default folder has one more level, for each Python and device type."""
    try:
        names = sorted(os.listdir(folder))
    except OSError:
        return
    for name in names:
        path = os.path.join(folder, name)
        lock = os.path.join(path, "lock")
        if os.path.isfile(lock):
            yield lock
        if depth > 1:
            yield from _locks(path, depth - 1)


def _open_files(proc: str) -> set[str]:
    found = set()
    for process in os.listdir(proc):
        if process.isdecimal():
            folder = os.path.join(proc, process, "fd")
            try:
                for name in os.listdir(folder):
                    found.add(os.readlink(os.path.join(folder, name)))
            except OSError:
                continue  # it ended, or belongs to another user
    return found


class BuildLocks(Watcher):
    """Warns of each lock that nobody holds, in every attempt."""

    def __init__(self, seen: WatchedJob) -> None:
        self._seen = seen

    def begins(self, watched: Watched) -> None:
        self._seen.loop.call_later(0, self._look)

    def _look(self) -> None:
        for text in warnings(self._seen.environ):
            self._seen.say(f"warning: {text}")


watch = BuildLocks
