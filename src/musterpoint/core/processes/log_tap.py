"""A copy of the ranks' output for the program that searches it (``programs/log_matcher``); it never waits for it."""

from __future__ import annotations

import os
import struct

from musterpoint.base.loop import Loop
from musterpoint.base.posix import fcntl
from musterpoint.core.processes.pipe_writer import PipeWriter
from musterpoint.core.processes.streams import LARGEST_PIPE

HEADER = struct.Struct("=dIiI")
"""Monotonic time, stream, rank, bytes; as in ``programs/log_matcher``."""
GAP = 0xFFFFFFFF
MOST_WAITING = 8 << 20
"""Bytes that wait for the program; what comes beyond that is left out, which a frame says."""


class LogTap:
    """Writes frames to ``fd``, the program's stdin, which it owns. Used in the pump's thread only."""

    def __init__(self, fd: int, loop: Loop) -> None:
        self._fd = fd
        self._writer = PipeWriter(loop, fd, on_broken=self.close)
        self._leaving_out = False
        try:
            fcntl.fcntl(fd, fcntl.F_SETPIPE_SZ, LARGEST_PIPE)
        except (ImportError, AttributeError, OSError):
            pass  # smaller is fine

    def feed(self, now: float, stream: int, rank: int, data: memoryview) -> None:
        """Bytes of a rank's stream that came at ``now``."""
        if self._fd < 0:
            return
        if self._leaving_out and self._writer.waiting > MOST_WAITING // 2:
            return
        self._leaving_out = self._writer.waiting + len(data) > MOST_WAITING
        header = HEADER.pack(now, stream, rank, GAP if self._leaving_out else len(data))
        self._writer.write(*([header] if self._leaving_out else [header, data]))

    def close(self) -> None:
        """Ends the program's input, with what is still waiting for it."""
        if self._fd >= 0:
            self._writer.discard()
            os.close(self._fd)
        self._fd = -1
