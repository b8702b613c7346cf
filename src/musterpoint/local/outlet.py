"""Descriptors whose reader may be slow, or gone: what it hasn't taken waits, and the writer only if that is a lot."""

from __future__ import annotations

import errno
import os
import select
import stat
import time
from typing import Callable

from musterpoint.loop import READ, WRITE, Loop

MOST_WAITING = 16 << 20
"""Bytes that wait for a slow reader."""


class Outlet:
    """A descriptor that somebody may read, or not (-1: nobody does). What its reader doesn't take at once waits in
    ``loop``; with more than :data:`MOST_WAITING` bytes the writer waits, too. ``emptied`` is called when nothing waits
    any more.

    ``waiting_since`` is the monotonic time since which the reader has taken nothing; None while nothing waits for it.
    What changes anything, but for :meth:`give_up`, is for the loop's thread.
    """

    def __init__(self, fd: int, loop: Loop, emptied: Callable[[], None] = lambda: None) -> None:
        own = _unblocked(fd)
        self._fd = fd if own is None else own
        self._owned = own is not None
        self._slice = select.PIPE_BUF if own is None else 1 << 20
        self._loop, self._emptied = loop, emptied
        self._left = bytearray()
        self.waiting_since: float | None = None
        self._wake_read, self._wake_write = os.pipe()
        loop.watch(self._wake_read, READ, lambda _ready: self._drop())

    @property
    def is_full(self) -> bool:
        """Whether the writer waits for the reader. May be asked from any thread."""
        return len(self._left) > MOST_WAITING

    def write(self, data: bytes) -> None:
        if self._fd < 0:
            return
        self._left += data
        self._flush()
        while self.is_full:
            if self._wake_read in select.select([self._wake_read], [self._fd], [])[0]:
                self._drop()
            else:
                self._flush()

    def _flush(self, _ready: int = WRITE) -> None:
        before = len(self._left)
        try:
            while self._left and (self._owned or select.select([], [self._fd], [], 0)[1]):
                with memoryview(self._left) as view:
                    written = os.write(self._fd, view[: self._slice])
                del self._left[:written]
        except BlockingIOError:
            pass
        except OSError as error:
            if error.errno == errno.ENOSPC:
                self._left.clear()  # a file on a full disk: later lines may fit
            else:
                self._drop()  # nobody reads any more; the logs go on
                return
        if not self._left:
            self._settle()
        elif self.waiting_since is None or len(self._left) < before:
            if self.waiting_since is None:
                self._loop.watch(self._fd, WRITE, self._flush)
            self.waiting_since = time.monotonic()

    def _drop(self) -> None:
        self._left.clear()
        self._settle()
        if self._owned:
            os.close(self._fd)
        self._fd, self._owned = -1, False
        self._loop.forget(self._wake_read)

    def _settle(self) -> None:
        if self.waiting_since is not None:
            self.waiting_since = None
            self._loop.forget(self._fd)
            self._emptied()

    def give_up(self) -> None:
        """Drops what waits and what comes. May be called from any thread."""
        os.write(self._wake_write, b"\0")

    def close(self) -> None:
        self._drop()
        os.close(self._wake_read)
        os.close(self._wake_write)


def _unblocked(fd: int) -> int | None:
    """The same file once more, never blocking, where the system gives it: others share ``fd`` as it is."""
    try:
        mode = os.fstat(fd).st_mode
        if stat.S_ISREG(mode):
            return os.dup(fd)
        if stat.S_ISFIFO(mode) or stat.S_ISCHR(mode):
            return os.open(f"/proc/self/fd/{fd}", os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    except OSError:
        pass
    return None


class Voice:
    """Our own messages, to a descriptor whose reader may be slow or gone: what it doesn't take now goes with the next
    message, or at the end.
    """

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._waiting = b""

    def say(self, data: bytes) -> None:
        self._waiting = (self._waiting + data)[-MOST_WAITING:]
        self._flush(0)

    def close(self, seconds: float) -> None:
        """Gives the reader so long for what still waits."""
        self._flush(seconds)

    def _flush(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        try:
            # a pipe that is ready takes this much at once
            while self._waiting and select.select([], [self._fd], [], max(0.0, until - time.monotonic()))[1]:
                self._waiting = self._waiting[os.write(self._fd, self._waiting[: select.PIPE_BUF]) :]
        except (OSError, ValueError):
            self._waiting = b""  # nobody to tell
