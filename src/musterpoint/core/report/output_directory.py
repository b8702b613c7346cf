"""The platform's output directory, held open before the user's program can change it; reserved space for the report.

The program may create links and other files there. So a descriptor of the directory is opened at the start, files are
opened relative to it, and links aren't followed. Files from before the start are an earlier run's: they are removed, or
remembered where that fails.
"""

from __future__ import annotations

import os
import stat
from typing import Iterable

from musterpoint.core.job.model import Paths

OUTCOME, TIMELINE = "outcome.json", "timeline.json"
RESERVED = {"failure": 4096, OUTCOME: 8192}
"""Bytes of the disk set aside for each file, so that a full disk doesn't prevent the report."""
_ROOT = 0
_SHARED = "shared"
"""SDK v2's local mode mounts ``/opt/ml/shared`` on all hosts."""


class OutputDirectory:
    """``paths`` has its path; without one all methods do nothing.

    ``shared``: a musterpoint above us uses it for the same job, so nothing in it is an earlier run's.
    """

    def __init__(self, paths: Paths, shared: bool = False) -> None:
        self.folder = os.path.dirname(paths.failure) or paths.output
        self.error: OSError | None = None
        """Why the directory can't be used."""
        self._old: dict[str, tuple[int, ...]] = {}
        self._reserved: dict[str, int] = {}
        self.fd = -1
        if self.folder:
            try:
                if not os.path.lexists(self.folder):
                    os.makedirs(self.folder, exist_ok=True)
                self.fd = os.open(self.folder, _DIRECTORY)  # may be a link: the user's program hasn't run yet
            except OSError as error:
                self.error = error
        if self.fd >= 0 and not shared:
            names = map(os.path.basename, (paths.failure, paths.success))
            for name in filter(None, (*names, OUTCOME, TIMELINE)):
                self.remove(name)
                if (found := self._stat(name)) is not None:
                    self._old[name] = _identity(found)

    def reserve(self) -> None:
        """Reserves disk space for the reports. Call it before the user's program runs."""
        for name, size in RESERVED.items():
            self.set_aside(name, size)

    def set_aside(self, name: str, size: int) -> None:
        """Reserves ``size`` bytes of disk space for the file ``name``, if there are as many."""
        if self.fd < 0:
            return
        place = _reserved_name(name)
        self.remove(place)  # from a run that was killed
        try:
            fd = self._reserved[name] = self.create(place)
            _allocate(fd, size)
        except OSError:
            pass  # a disk that is full already: the report will say so if it has something to write

    def take_reserved(self, name: str) -> tuple[int, str]:
        """Takes the reserved file for ``name``: descriptor and name; -1 if the program has replaced it."""
        fd, place = self._reserved.pop(name, -1), _reserved_name(name)
        if fd >= 0 and ((found := self._stat(place)) is None or not os.path.samestat(found, os.fstat(fd))):
            os.close(fd)
            fd = -1
        return fd, place

    def create(self, name: str) -> int:
        """Makes the file ``name``, which must be new, for writing.

        Raises:
            OSError: it can't be made.
        """
        return os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644, dir_fd=self.fd)

    def has_users_text(self, name: str) -> bool:
        """Whether a non-empty file ``name`` was written since the start."""
        found = self._stat(name)
        written = found is not None and stat.S_ISREG(found.st_mode) and found.st_size > 0
        return written and found is not None and _identity(found) != self._old.get(name)

    def remove(self, name: str) -> None:
        try:
            os.unlink(name, dir_fd=self.fd)
        except OSError:
            pass

    def reopen(self) -> None:
        """Opens the directory again if the program has removed or replaced it."""
        if self.fd < 0:
            return
        try:
            os.makedirs(self.folder, exist_ok=True)
            fd = os.open(self.folder, _DIRECTORY | os.O_NOFOLLOW)
        except OSError:
            return  # a link: the platform's own, or the program's
        if os.path.samestat(os.fstat(fd), os.fstat(self.fd)):
            os.close(fd)
        else:
            os.close(self.fd)
            self.fd = fd

    def close(self) -> None:
        for name in tuple(self._reserved):
            fd, place = self.take_reserved(name)
            if fd >= 0:
                os.close(fd)
                self.remove(place)
        if self.fd >= 0:
            os.close(self.fd)
        self.fd = -1

    def _stat(self, name: str) -> os.stat_result | None:
        try:
            return os.stat(name, dir_fd=self.fd, follow_symlinks=False)
        except OSError:
            return None


_DIRECTORY = getattr(os, "O_DIRECTORY", 0) | getattr(os, "O_PATH", os.O_RDONLY) | getattr(os, "O_CLOEXEC", 0)


def _reserved_name(name: str) -> str:
    """The file that holds the space for ``name``."""
    return f".{name}.reserved"


def _identity(found: os.stat_result) -> tuple[int, ...]:
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns


def _allocate(fd: int, size: int) -> None:
    """Allocates ``size`` bytes of disk space."""
    try:
        os.posix_fallocate(fd, 0, size)
    except (AttributeError, OSError):
        os.write(fd, b" " * size)
        os.fsync(fd)


def give_back(paths: Paths) -> int:
    """Gives what root owns in the job's directories to the owner of its input; returns how many entries.

    The owner is a person whose machine runs the containers, who couldn't delete what the SDKs' local modes and
    ``docker run -v`` leave on their disk. On a platform that makes the input as root itself nothing is changed.
    Only directories below the platform's own are changed, as a checkpoint path may be anywhere. Symbolic links are
    changed themselves, never what they lead to. What can't be changed stays as it is.
    """
    owner = _owner(paths.input_config) if paths.base and os.geteuid() == _ROOT else None
    if owner is None or owner[0] == _ROOT:
        return 0
    inside = os.path.join(paths.base, "")
    folders = (paths.model, paths.output, paths.checkpoints, paths.code, inside + _SHARED)
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
            if found.st_uid == _ROOT and not grants:
                os.chown(name, *owner, dir_fd=fd, follow_symlinks=False)
                given += 1
        except OSError:
            continue  # gone meanwhile, or a read-only mount
    return given
