"""Changes of files, by Linux's inotify and leases; elsewhere somebody has to look now and then, and can't tell.

Runs in a Python that may not have musterpoint.
"""

from __future__ import annotations

import ctypes
import os
import struct
import threading
from typing import Callable

from musterpoint.base.below import RESERVED

_CLOSE_WRITE, _MOVED_TO, _CREATE, _DELETE, _MOVED_FROM = 0x8, 0x80, 0x100, 0x200, 0x40
_GONE = 0x400 | 0x800
"""The folder itself was removed, or renamed."""
_MASK = _CLOSE_WRITE | _MOVED_TO | _CREATE | _DELETE | _MOVED_FROM | _GONE
_IS_FOLDER = 0x40000000
_EVENT = struct.Struct("iIII")
_NONBLOCK_CLOEXEC = 0o2000000


class DirectoryWatch:
    """Calls ``on_change``, in a thread of its own, when something below ``root`` was written, renamed or removed.

    ``works``: False where this system has no inotify, or no more watches, and once ``root`` itself has gone: a program
    may make it anew.
    """

    def __init__(self, root: str, on_change: Callable[[], None]) -> None:
        self.works = False
        self._moved, self._lock = set[str](), threading.Lock()
        self._root, self._on_change = root, on_change
        self._folders: dict[int, str] = {}
        try:
            self._libc = ctypes.CDLL(None, use_errno=True)
            self._fd = self._libc.inotify_init1(_NONBLOCK_CLOEXEC)
        except (OSError, AttributeError):
            return
        if self._fd < 0:
            return
        self.works = self._add(root)
        threading.Thread(target=self._read, daemon=True).start()

    def _add(self, folder: str) -> bool:
        watch = self._libc.inotify_add_watch(self._fd, os.fsencode(folder), _MASK)
        if watch < 0:
            self.works = False
            return False
        self._folders[watch] = folder
        try:
            with os.scandir(folder) as entries:
                inner = [
                    entry.path
                    for entry in entries
                    if entry.is_dir(follow_symlinks=False) and not entry.name.startswith(RESERVED)
                ]
        except OSError:
            return True
        return not [path for path in inner if not self._add(path)]

    @property
    def moved(self) -> frozenset[str]:
        """Files and folders that were renamed to their names, relative, and not written into since."""
        with self._lock:
            return frozenset(self._moved)

    def _note(self, path: str, is_moved: bool) -> None:
        parts = path.split("/")
        with self._lock:
            self._moved.difference_update("/".join(parts[:at]) for at in range(1, len(parts) + 1))
            if is_moved:
                self._moved.add(path)

    def _read(self) -> None:
        while True:
            try:
                data = os.read(self._fd, 65536)
            except OSError:
                self.works = False
                return
            at, is_ours = 0, True
            while at < len(data):
                watch, mask, _, length = _EVENT.unpack_from(data, at)
                name = os.fsdecode(data[at + _EVENT.size : at + _EVENT.size + length].rstrip(b"\0"))
                at += _EVENT.size + length
                if name.startswith(RESERVED):
                    continue
                folder, is_ours = self._folders.get(watch), False
                self.works = self.works and not (mask & _GONE and folder == self._root)
                if folder is not None:
                    self._note(os.path.relpath(os.path.join(folder, name), self._root), bool(mask & _MOVED_TO))
                if folder is not None and mask & _IS_FOLDER and mask & (_CREATE | _MOVED_TO):
                    self._add(os.path.join(folder, name))
            if not is_ours:
                self._on_change()


def is_written(fd: int) -> bool | None:
    """Tells whether some process has the open file open for writing, too; None where the system doesn't tell.

    The kernel gives out a read lease only while no process has; it is given back at once (fcntl(2), "Leases").
    """
    try:
        import fcntl

        lease = fcntl.F_SETLEASE
    except (ImportError, AttributeError):  # another system
        return None
    try:
        fcntl.fcntl(fd, lease, fcntl.F_RDLCK)
        fcntl.fcntl(fd, lease, fcntl.F_UNLCK)
        return False
    except BlockingIOError:
        return True
    except OSError:  # a file of somebody else's, or a file system without leases
        return None
