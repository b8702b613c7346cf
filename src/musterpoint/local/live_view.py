"""Keeps the hosts' lines on the terminal while a local job runs: from their events, and once a second."""

from __future__ import annotations

import contextlib
import json
import os
from typing import Mapping

from musterpoint.base.event_pipe import FILE
from musterpoint.base.loop import READ, Loop, Timer
from musterpoint.base.terminal import colours, is_terminal
from musterpoint.local.live import HostLine, lines
from musterpoint.local.live_area import LEAST_ROWS, LiveArea
from musterpoint.local.output import Pump

_TICK = 1.0
_CHUNK = 65536
_SHARE = 3
"""The lines take a third of the screen at most."""


def can_be_shown(out: int, environ: Mapping[str, str]) -> bool:
    """Whether ``out`` is a terminal that can keep rows of its own."""
    return is_terminal(out) and environ.get("TERM", "dumb") != "dumb"


class LiveView:
    """The lines of a job's hosts on the terminal ``out``, below what ``pump`` writes there."""

    def __init__(self, loop: Loop, pump: Pump, out: int, environ: Mapping[str, str]) -> None:
        self._loop, self._pump, self._out = loop, pump, out
        self._colour = colours(out, environ)
        self._area = LiveArea()  # the pump's thread's
        self._lines: dict[str, HostLine] = {}
        self._pipes: dict[int, tuple[str, str]] = {}
        self._rest: dict[int, bytes] = {}
        self._timer: Timer | None = None

    def add(self, host: str, folder: str) -> None:
        """A host that is started now; it finds the pipe for its events in ``folder``, of this machine."""
        self._lines[host] = HostLine(host, self._loop.clock())
        path = os.path.join(folder, FILE)
        try:
            os.mkfifo(path)
            os.chmod(path, 0o622)  # a container's user may be another one
            fd = os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)  # to write, so that it has no end
        except OSError:
            return  # its line then knows the host's start, output and end
        self._pipes[fd], self._rest[fd] = (host, path), b""
        self._loop.watch(fd, READ, lambda _ready, fd=fd: self._read(fd))  # type: ignore[misc]

    def begin(self) -> None:
        """From now on the lines are shown."""
        self._tick()

    def end(self, host: str, code: int) -> None:
        """A host has ended."""
        if host in self._lines and self._lines[host].code is None:
            self._lines[host].end(code, self._loop.clock())
            self._draw()

    def close(self) -> None:
        """Takes the lines away; later calls do nothing."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
            self._pump.overlay(self._area.close, must=True)
        for fd, (_, path) in self._pipes.items():
            self._loop.forget(fd)
            os.close(fd)
            with contextlib.suppress(OSError):
                os.unlink(path)
        self._pipes.clear()

    def _read(self, fd: int) -> None:
        *whole, self._rest[fd] = (self._rest[fd] + os.read(fd, _CHUNK)).split(b"\n")
        line = self._lines[self._pipes[fd][0]]
        for text in whole:
            try:
                event, facts = json.loads(text)
                line.hear(str(event), dict(facts))
            except (ValueError, TypeError):
                continue  # the user's program may write there, too
        self._draw()

    def _tick(self) -> None:
        self._timer = self._loop.call_later(_TICK, self._tick)
        self._draw()

    def _draw(self) -> None:
        if self._timer is None:
            return
        try:
            size = os.get_terminal_size(self._out)
        except OSError:
            return
        now = self._loop.clock()
        columns = [line.columns(now, self._pump.last_output.get(host)) for host, line in self._lines.items()]
        most = max(1, size.lines // _SHARE)
        shown = lines(columns, size.columns, most, self._colour) if size.lines > LEAST_ROWS else []
        self._pump.overlay(lambda: self._area.draw(shown, (size.columns, size.lines), self._pump.unfinished))
