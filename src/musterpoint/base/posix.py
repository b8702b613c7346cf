"""Modules that only POSIX systems have; each is None elsewhere, where plans are made but no job runs."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import fcntl
    import pwd
    import resource
    import termios
else:
    try:
        import fcntl
        import pwd
        import resource
        import termios
    except ImportError:
        fcntl = pwd = resource = termios = None

__all__ = ["fcntl", "pwd", "resource", "termios"]
