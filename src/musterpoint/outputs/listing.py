"""The files below the directory, and whether one is still being written. Runs in a Python without musterpoint."""

from __future__ import annotations

import errno
import os
import stat

from musterpoint.outputs.ledger import Version

PRIVATE = ".tmp."
"""What directories begin with whose content is never uploaded; sagemaker-training keeps its copies in one."""


def version_of(path: str) -> Version | None:
    """Of the file, or of the file that a link leads to; None where there is none."""
    try:
        found = os.stat(path)
    except (OSError, ValueError):
        return None
    return (found.st_size, found.st_mtime_ns, found.st_ino) if stat.S_ISREG(found.st_mode) else None


def is_private(path: str) -> bool:
    """Whether a relative path leads through a private directory."""
    return any(part.startswith(PRIVATE) for part in path.split(os.sep)[:-1])


def listing(directory: str, below: str = "") -> dict[str, Version]:
    """Every file below ``directory`` (only those in its folder ``below``, if given), by its relative path.

    Links to files are files; links to directories aren't followed, as they may lead in circles.
    """
    found = {}
    for folder, folders, files in os.walk(os.path.join(directory, below)):
        folders[:] = [name for name in folders if not name.startswith(PRIVATE)]
        for name in files:
            path = os.path.join(folder, name)
            version = version_of(path)
            relative = os.path.relpath(path, directory)
            if version is not None and not is_private(relative):
                found[relative] = version
    return found


def has_files(directory: str) -> bool:
    return any(files for _folder, _folders, files in os.walk(directory))


def is_written(path: str) -> bool | None:
    """Whether some process has the file open for writing; None where the system doesn't tell.

    The kernel gives out a read lease only while nobody has; it is given back at once (fcntl(2), "Leases").
    """
    import fcntl

    if not hasattr(fcntl, "F_SETLEASE"):
        return None
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_RDLCK)
        fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_UNLCK)
        return False
    except OSError as error:
        return True if error.errno == errno.EAGAIN else None
    finally:
        os.close(fd)
