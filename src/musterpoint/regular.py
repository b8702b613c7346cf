"""Opening files that others made: only regular ones, so that no named pipe, terminal or device is waited for.

Both functions are openers for :func:`open`. Files are read; a link to a file is one where a platform may have made it.
"""

from __future__ import annotations

import errno
import os
import stat

_NOT_WAITING = getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0)


def regular(path: str, flags: int = os.O_RDONLY) -> int:
    """A descriptor of the file at ``path``, or of the file that a link there leads to.

    Raises:
        OSError: there is none, or it is something else; ``strerror`` says what.
    """
    found = os.stat(path)  # not opened to be asked: opening a device may do something
    if not stat.S_ISREG(found.st_mode):
        raise OSError(errno.EINVAL, f"it is {_kind(found.st_mode)}, expected a regular file", path)
    fd = os.open(path, flags | _NOT_WAITING)
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise OSError(errno.EINVAL, "it became something else, expected a regular file", path)
    return fd


def regular_itself(path: str, flags: int = os.O_RDONLY) -> int:
    """:func:`regular` where the user's program may have put a link, which isn't followed."""
    return regular(path, flags | getattr(os, "O_NOFOLLOW", 0))


def _kind(mode: int) -> str:
    kinds = {
        stat.S_IFDIR: "a directory", stat.S_IFIFO: "a named pipe", stat.S_IFSOCK: "a socket",
        stat.S_IFCHR: "a device", stat.S_IFBLK: "a device",
    }  # fmt: skip
    return kinds.get(stat.S_IFMT(mode), "no file")
