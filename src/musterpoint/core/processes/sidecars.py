"""Sidecars: programs of ours that run beside the job, perhaps before its start and after its end.

They don't count as processes of the job, and aren't signalled or killed with them.
"""

from __future__ import annotations

import os
import signal
from collections import deque
from typing import Callable, Mapping, Sequence

from musterpoint.base.lines import Line, Lines
from musterpoint.base.loop import WRITE, Loop
from musterpoint.base.python_variables import for_tools
from musterpoint.core.processes import process_tree
from musterpoint.core.processes.process import Streams, spawn
from musterpoint.core.processes.streams import Bytes, after

OnEnd = Callable[[int], None]
"""Gets an exit status; negative for a signal."""
UNKILLABLE_SECONDS = 3.0
"""Seconds to wait for a sidecar after SIGKILL: it may be stuck in the kernel, on a failed disk."""
MOST_UNREAD = 16 * 1024**2
"""Bytes that a sidecar may leave unread, beyond a pipe full, before it is killed: who started it may start another."""


class Sidecar:
    """Made by :meth:`Sidecars.start`. ``code`` is its exit status (negative for a signal), None until it has ended."""

    def __init__(self, loop: Loop, pid: int, stdin: int, output: int, on_line: Line, on_end: OnEnd) -> None:
        self.pid = pid
        self.code: int | None = None
        self._stdin = stdin
        self._writer = _PipeWriter(loop, stdin)
        self._on_line, self._on_end = on_line, on_end
        self._lines = Lines(loop, output, on_line, self._output_ended)

    def send(self, line: str) -> None:
        """Writes a line to its stdin, now or when what was sent before has been read; nothing happens where it has
        ended. One that leaves more than :data:`MOST_UNREAD` bytes unread is killed, so that no line is ever left out.
        """
        if self._stdin < 0:
            return
        self._writer.write(line.encode() + b"\n")
        if self._writer.waiting > MOST_UNREAD:
            self._writer.discard()
            self._on_line(f"it doesn't read what it is told: {MOST_UNREAD >> 20} MiB wait")
            process_tree.send(self.pid, signal.SIGKILL)

    def dismiss(self) -> None:
        """Asks it to end, by closing its stdin. Lines that wait for room in the pipe are dropped."""
        if self._stdin >= 0:
            self._writer.discard()
            os.close(self._stdin)
            self._stdin = -1

    def _output_ended(self) -> None:
        """Its output has ended, and so has it; another wait for all children may have taken its status."""
        if self.code is None:
            try:
                self.ended(os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1]))
            except ChildProcessError:
                pass

    def ended(self, code: int) -> None:
        """Its exit status is ``code``."""
        if self.code is None:
            self.code = code
            self._lines.close()
            self.dismiss()
            self._on_end(code)


class Sidecars:
    """The sidecars of this process. Start them in the main thread."""

    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self._all: dict[int, Sidecar] = {}

    @property
    def pids(self) -> set[int]:
        """The pids of running sidecars."""
        return {pid for pid, sidecar in self._all.items() if sidecar.code is None}

    def start(
        self, argv: Sequence[str], environ: Mapping[str, str], on_line: Line, on_end: OnEnd, outlives: bool = False
    ) -> Sidecar:
        """Starts a program of ours in a process group of its own, in ``/``.

        It ends when its stdin does, and before that if we are killed, unless it ``outlives`` us. ``on_line`` gets each
        line of its stdout and stderr, ``on_end`` its exit status, both in the loop's thread.

        Raises:
            CannotStart: the program couldn't be executed.
        """
        stdin_read, stdin = os.pipe()
        output, output_write = os.pipe()
        try:
            streams = Streams(stdin_read, output_write, output_write)
            pid = spawn(list(argv), for_tools(environ), "/", streams, outlives=outlives)
        except BaseException:
            os.close(stdin)
            os.close(output)
            raise
        finally:
            os.close(stdin_read)
            os.close(output_write)
        sidecar = self._all[pid] = Sidecar(self._loop, pid, stdin, output, on_line, on_end)
        return sidecar

    def ended(self, pid: int, code: int) -> bool:
        """Takes the end of a child of this process; returns whether it was a sidecar."""
        sidecar = self._all.get(pid)
        if sidecar is None or sidecar.code is not None:  # pids are used again
            return False
        sidecar.ended(code)
        return True

    def close(self, grace: float = 0.0) -> None:
        """Asks all to end, waits ``grace`` seconds for that, then kills them."""
        for sidecar in self._all.values():
            sidecar.dismiss()
        self._wait(grace)
        for pid in self.pids:
            process_tree.send(pid, signal.SIGKILL)
        self._wait(UNKILLABLE_SECONDS)
        self._all.clear()

    def _wait(self, seconds: float) -> None:
        until = self._loop.clock() + seconds
        while self.pids and (left := until - self._loop.clock()) > 0:
            self._loop.turn(left)


class _PipeWriter:
    """Writes to the pipe ``fd`` what it takes, now or later, and never waits for its reader. Whoever owns ``fd``
    discards before closing it.

    ``waiting``: bytes that the pipe hasn't taken yet. ``on_broken`` is called when a write finds that nobody reads any
    more; what waits is dropped first.
    """

    def __init__(self, loop: Loop, fd: int, on_broken: Callable[[], None] = lambda: None) -> None:
        self._loop, self._fd, self._on_broken = loop, fd, on_broken
        self._parts: deque[Bytes] = deque()
        self.waiting = 0
        os.set_blocking(fd, False)

    def write(self, *parts: Bytes) -> None:
        """Writes all ``parts``, after what waits."""
        left = list(parts)
        if not self._parts:
            left = self._written(left)
        if left:
            copies = [bytes(part) for part in left]
            self._parts += copies
            self.waiting += sum(map(len, copies))
            self._loop.watch(self._fd, WRITE, lambda _ready: self._flush())

    def _flush(self) -> None:
        while self._parts:
            part = self._parts.popleft()
            left = self._written([part])
            self.waiting -= len(part) - sum(map(len, left))
            if left:
                self._parts.extendleft(left)
                return
        self.discard()

    def _written(self, parts: list[Bytes]) -> list[Bytes]:
        """Writes what the pipe takes now; returns what is left."""
        try:
            return after(parts, os.writev(self._fd, parts))
        except BlockingIOError:
            return parts
        except OSError:
            self.discard()
            self._on_broken()
            return []

    def discard(self) -> None:
        """Drops what waits."""
        self._loop.forget(self._fd)
        self._parts.clear()
        self.waiting = 0
