"""One install at a time into one Python, where several hosts of a job share a machine."""

from __future__ import annotations

import os
import zlib
from typing import Any, Mapping

from musterpoint.code.tools import Tools

_WAIT = "import fcntl, sys; fcntl.flock(int(sys.argv[1]), fcntl.LOCK_EX)"


class InstallLock:
    """Held inside the ``with``. The lock is the kernel's, on an open file: it ends with the process that has it.

    Where no file can be made for it, there is none.
    """

    def __init__(self, interpreter: str, environ: Mapping[str, str], tools: Tools) -> None:
        self._interpreter, self._environ, self._tools = interpreter, environ, tools
        self._fd = -1

    @property
    def path(self) -> str:
        """The lock's file: the same for all who install into this Python as this user."""
        folder = self._environ.get("TMPDIR") or "/tmp"
        name = zlib.crc32(os.path.dirname(os.path.abspath(self._interpreter)).encode(errors="surrogateescape"))
        return os.path.join(folder, f"musterpoint-install-{os.geteuid()}-{name:08x}.lock")

    def __enter__(self) -> InstallLock:
        try:
            self._fd = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        except OSError:
            return self
        try:
            self._take()
        except BaseException:
            self.__exit__()
            raise
        return self

    def _take(self) -> None:
        import fcntl

        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self._tools.say(f"another process is installing into {self._interpreter}: waiting for it")
            # a child waits on the same open file, so that the lock it gets is ours, and a stop ends the wait
            words = (self._interpreter, "-I", "-S", "-c", _WAIT, str(self._fd))
            self._tools.run(words, self._environ, "/", lambda text: None, keep=(self._fd,))

    def __exit__(self, *_: Any) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
