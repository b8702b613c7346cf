"""A sink: a file the pump writes to (our own stdout or stderr, a rank's log file), whatever becomes of it."""

from __future__ import annotations

import errno
import os
import select
import stat
from typing import Callable, Union

Bytes = Union[bytes, memoryview]

_GONE = (errno.EPIPE, errno.EIO, errno.EBADF, errno.ECONNRESET)


class Sink:
    """Written by one thread, which it may block. ``streams`` counts the streams that end here.

    A reader that has gone away makes it ``gone``: the pump goes on reading and discarding. Any other trouble (a full
    disk) costs the bytes at hand and is told to ``on_trouble`` once.
    """

    __slots__ = ("fd", "gone", "mid_line", "owner", "streams", "_on_trouble", "_told")

    def __init__(self, fd: int, on_trouble: Callable[[OSError], None] | None = None) -> None:
        self.fd = fd
        self.streams = 0
        self.mid_line = False
        self.owner: object = None
        self.gone = False
        self._on_trouble = on_trouble
        self._told = False

    def write(self, *parts: Bytes) -> None:
        """Writes all ``parts`` in order; returns when they are written or can't be."""
        if self.gone:
            return
        left = [part for part in parts if len(part)]
        if not left:
            return
        self.mid_line = left[-1][-1] != 10
        while left:
            try:
                left = _after(left, os.writev(self.fd, left))
            except BlockingIOError:  # somebody who shares this file made it non-blocking
                select.select([], [self.fd], [])
            except OSError as error:
                self.gone = error.errno in _GONE
                if not self.gone and not self._told and self._on_trouble is not None:
                    self._told = True
                    self._on_trouble(error)
                return

    def write_within(self, data: bytes, seconds: float) -> None:
        """Writes ``data`` if the reader takes it within about ``seconds``; drops it otherwise."""
        while data and not self.gone:
            try:
                if not select.select([], [self.fd], [], seconds)[1]:
                    return
                # a pipe that is ready has room for this much without blocking
                written = os.write(self.fd, data[: select.PIPE_BUF])
                self.mid_line = data[written - 1] != 10
                data = data[written:]
            except OSError:
                return

    def close(self) -> None:
        if self.fd >= 0:
            os.close(self.fd)
        self.fd, self.gone = -1, True


def log_file(path: str, on_trouble: Callable[[OSError], None]) -> Sink:
    """A sink that appends to the file at ``path``; one that drops everything if it can't be opened.

    The program may have put something else there, which is neither followed nor waited for.
    """
    try:
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o644)
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            os.close(fd)
            raise OSError(errno.EINVAL, "it is no file", path)
    except OSError as error:
        on_trouble(error)
        fd = -1
    sink = Sink(fd, on_trouble)
    sink.gone = fd < 0
    return sink


def _after(parts: list[Bytes], written: int) -> list[Bytes]:
    """``parts`` without the first ``written`` bytes."""
    while parts and written >= len(parts[0]):
        written -= len(parts[0])
        parts = parts[1:]
    if written:
        parts = [memoryview(parts[0])[written:], *parts[1:]]
    return parts
