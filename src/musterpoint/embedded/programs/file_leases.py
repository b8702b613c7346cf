"""Whether a file is open for writing somewhere. Runs in a Python without musterpoint."""

from __future__ import annotations

import os


def is_written(path: str) -> bool | None:
    """Whether some process has the file open for writing; None where the system doesn't tell.

    The kernel gives out a read lease only while no process has; it is given back at once (fcntl(2), "Leases").
    """
    try:
        import fcntl

        lease = fcntl.F_SETLEASE
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except (ImportError, AttributeError, OSError):  # another system, or no such file
        return None
    try:
        fcntl.fcntl(fd, lease, fcntl.F_RDLCK)
        fcntl.fcntl(fd, lease, fcntl.F_UNLCK)
        return False
    except BlockingIOError:
        return True
    except OSError:  # a file of somebody else's, or a file system without leases
        return None
    finally:
        os.close(fd)
