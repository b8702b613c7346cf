"""The uploader's list of files: which exist, which are uploaded, and which are next.

Runs in a Python without musterpoint. Paths are relative to the directory; times are seconds on one monotonic clock.
"""

from __future__ import annotations

import heapq
import json
import os
import stat

SETTLE = 1.0
"""Seconds from a change to its upload, so that a file that is rewritten or renamed soon is uploaded once."""
FILES = 4
"""Uploads at the same time."""
LONGEST_PAUSE = 60.0
"""The longest pause of all uploads after repeated failures, in seconds."""
LONGEST_FINAL_PAUSE = 5.0
PRIVATE = ".tmp."
"""Directories with this prefix are never uploaded; sagemaker-training keeps its copies in one."""

Version = tuple[int, int, int]
"""Size, time of the last change (ns), inode: differs when the content has changed."""


def version_of(path: str, root: str) -> Version | None:
    """The version of the file at ``path`` below the directory ``root``; None if there is none, or a link leads out."""
    try:
        if leads_out(path, root):
            return None
        found = os.stat(path)
    except (OSError, ValueError):
        return None
    return (found.st_size, found.st_mtime_ns, found.st_ino) if stat.S_ISREG(found.st_mode) else None


def leads_out(path: str, root: str) -> bool:
    """Whether ``path`` is a link that leads out of the directory ``root``."""
    if not os.path.islink(path):
        return False
    top = os.path.realpath(root)
    return os.path.commonpath((top, os.path.realpath(path))) != top


def is_private(path: str) -> bool:
    """Whether a relative path leads through a private directory."""
    return any(part.startswith(PRIVATE) for part in path.split(os.sep)[:-1])


def listing(directory: str, below: str = "") -> dict[str, Version]:
    """Every file below ``directory`` (only those in its folder ``below``, if given), by its relative path.

    Links to files in it are files; links to directories aren't followed, as they may lead in circles.
    """
    found = {}
    for folder, folders, files in os.walk(os.path.join(directory, below)):
        folders[:] = [name for name in folders if not name.startswith(PRIVATE)]
        for name in files:
            path = os.path.join(folder, name)
            version = version_of(path, directory)
            relative = os.path.relpath(path, directory)
            if version is not None and not is_private(relative):
                found[relative] = version
    return found


def read_record(path: str) -> dict[str, Version]:
    """What an earlier uploader has uploaded. Its last line may be incomplete if it was killed."""
    found: dict[str, Version] = {}
    with open(path, encoding="utf-8") as file:
        for line in file:
            try:
                name, size, changed, inode = json.loads(line)
            except ValueError:
                continue
            found[name] = (size, changed, inode)
    return found


def write_record(path: str, name: str, version: Version) -> None:
    with open(path, "a", encoding="utf-8") as file:
        file.write("\n" + json.dumps([name, *version]))


class Ledger:
    """Which files to upload, and when. Does no I/O.

    ``up``: uploaded files; ``uploading``: running uploads; each with the version at the upload's beginning.
    """

    def __init__(self, up: dict[str, Version] | None = None) -> None:
        self.up: dict[str, Version] = dict(up or {})
        self.uploading: dict[str, Version] = {}
        self.failures = 0
        self._due: dict[str, float] = {}
        self._queue: list[tuple[float, str]] = []
        self._again: set[str] = set()
        self._paused_until = 0.0
        self._settle, self._longest = SETTLE, LONGEST_PAUSE

    def changed(self, path: str, now: float, wait: float | None = None) -> None:
        """The file changed: uploads it after a pause, which further changes don't extend."""
        if path in self.uploading:
            self._again.add(path)
        elif path not in self._due:
            self._put(path, now + (self._settle if wait is None else wait))

    def forget(self, path: str) -> None:
        """Drops the file from what is to be uploaded."""
        self._due.pop(path, None)
        self._again.discard(path)

    def ready(self, now: float) -> list[str]:
        """The files to upload now, longest due first; call :meth:`begin` or :meth:`forget` for each."""
        found: list[str] = []
        while self._queue and now >= self._paused_until and len(self.uploading) + len(found) < FILES:
            due, path = self._queue[0]
            if due > now:
                break
            heapq.heappop(self._queue)
            if self._due.get(path) == due:
                del self._due[path]
                found.append(path)
        return found

    def next_at(self) -> float | None:
        """When to call :meth:`ready` again; None: after the next change or end of an upload."""
        while self._queue and self._due.get(self._queue[0][1]) != self._queue[0][0]:
            heapq.heappop(self._queue)
        if not self._queue or len(self.uploading) >= FILES:
            return None
        return max(self._queue[0][0], self._paused_until)

    def is_up(self, path: str, version: Version) -> bool:
        return self.up.get(path) == version

    def begin(self, path: str, version: Version) -> None:
        self.uploading[path] = version

    def went_up(self, path: str, version: Version | None, now: float) -> bool:
        """The upload succeeded. ``version``: the file's now, None: gone; False if it changed and is uploaded again."""
        begun = self.uploading.pop(path)
        self.failures, self._paused_until = 0, 0.0
        self.up[path] = begun
        same = version is None or version == begun
        if not same or path in self._again:
            self._again.discard(path)
            self._put(path, now + self._settle)
        return same

    def failed(self, path: str, version: Version | None, now: float, lasting: bool) -> bool:
        """The upload failed and is tried again. All uploads pause first, unless the failure is ``lasting`` and time is
        short. Returns False if the file changed meanwhile, which doesn't count as a failure.
        """
        begun = self.uploading.pop(path)
        self._again.discard(path)
        if version is not None:
            self._put(path, now)
        if version != begun:
            return False
        self.failures += 1
        if not (lasting and self._settle == 0.0):
            self._paused_until = now + min(0.5 * 2.0 ** min(self.failures, 20), self._longest)
        return True

    def refused(self, path: str) -> None:
        """Gives the file up: retries won't help."""
        self.uploading.pop(path, None)
        self.forget(path)

    def hurry(self) -> None:
        """Files don't change any more: uploads everything without waiting."""
        self._settle, self._longest, self._paused_until, self.failures = 0.0, LONGEST_FINAL_PAUSE, 0.0, 0
        for path in self._due:
            self._due[path] = 0.0
        self._queue = [(0.0, path) for path in self._due]

    @property
    def is_idle(self) -> bool:
        """Whether no upload runs or waits."""
        return not self._due and not self.uploading

    def _put(self, path: str, due: float) -> None:
        self._due[path] = due
        heapq.heappush(self._queue, (due, path))
