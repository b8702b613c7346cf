"""Modules that only POSIX systems have; each is None elsewhere, where plans are made but no job runs."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import fcntl
    import pwd
else:
    try:
        import fcntl
        import pwd
    except ImportError:
        fcntl = pwd = None

__all__ = ["fcntl", "pwd"]
