"""What ``muster local`` shows of each host below the log: its phase, ranks, last output and time, from its events.

:class:`LiveView` keeps these lines on the terminal while a local job runs.
"""

from __future__ import annotations

import contextlib
import json
import os
from typing import Any, Mapping, NamedTuple

from musterpoint.base.event_pipe import FILE
from musterpoint.base.loop import READ, Loop, Timer
from musterpoint.base.terminal import colours, is_terminal
from musterpoint.local.live_area import LEAST_ROWS, LiveArea
from musterpoint.local.output import Pump

PHASES = (
    "starting",
    "preparing",
    "installing",
    "names",
    "roll call",
    "launching",
    "running",
    "stopping",
    "finishing",
    "waiting",
    "leaving",
)
"""In the order in which a host goes through them; some are left out."""
BY_EVENT = {
    "entry-point-started": "preparing",
    "installing": "installing",
    "rollcall-started": "names",
    "host-here": "roll call",
    "name-resolved": "roll call",
    "rollcall-done": "launching",
    "launcher-started": "launching",
    "rank-started": "running",
    "stop-asked": "stopping",
    "job-stopped": "stopping",
    "job-failed": "stopping",
    "failure-seen": "stopping",
    "waiting-for-hosts": "waiting",
    "all-hosts-done": "leaving",
    "job-ended": "leaving",
}
"""The phase that begins with an event."""
_RED, _GREEN, _YELLOW = 31, 32, 33
_TICK = 1.0
_CHUNK = 65536
_SHARE = 3
"""The lines take a third of the screen at most."""


class HostLine:
    """One host's line. ``began``: when it was started, on the clock of all times here (seconds)."""

    def __init__(self, host: str, began: float) -> None:
        self.host = host
        self.phase = PHASES[0]
        self.code: int | None = None
        self._began = began
        self._ended = 0.0
        self._launched: float | None = None
        self._ranks: dict[int, bool] = {}
        self._hosts = self._here = 0

    def hear(self, event: str, facts: Mapping[str, Any], now: float) -> None:
        """The host's entry point, or one of several there, tells of an event; a phase never goes back."""
        if event == "restart":
            self._ranks.clear()
            self.phase, self._launched = "launching", None
        elif event == "rollcall-started":
            self._hosts, self._here = int(facts.get("hosts", 0)), 1
        elif event == "host-here":
            self._here += 1
        elif event == "rank-started":
            self._ranks[int(facts.get("rank", -1))] = True
            self._launched = self._launched or now
        elif event == "rank-ended":
            self._ranks[int(facts.get("rank", -1))] = False
        phase = BY_EVENT.get(event, self.phase)
        if event == "rank-ended" and not any(self._ranks.values()):
            phase = "finishing"
        if PHASES.index(phase) > PHASES.index(self.phase):
            self.phase = phase

    def end(self, code: int, now: float) -> None:
        """The host has ended."""
        self.code, self._ended = code, now

    def columns(self, now: float, last_output: float | None) -> Columns:
        """What is to be shown at ``now``, where the host wrote something at ``last_output``."""
        until = self._ended if self.code is not None else now
        took = clock(until - self._began)
        if self.code is not None:
            return Columns(self.host, f"ended with code {self.code}", "", "", took, _RED if self.code else 0)
        detail = ""
        if self._ranks:
            detail = f"{sum(self._ranks.values())} of {len(self._ranks)} ranks alive"
        elif self.phase in ("names", "roll call") and self._hosts:
            detail = f"{min(self._here, self._hosts)} of {self._hosts} hosts here" if self._here > 1 else ""
        silent = "" if last_output is None else f"last output {ago(now - last_output)}"
        if self._launched is not None and any(self._ranks.values()) and (last_output or 0.0) < self._launched:
            silent = f"no output yet, {clock(now - self._launched)}"
        shade = _GREEN if self.phase == "running" else _YELLOW if self.phase in ("stopping", "waiting") else 0
        # an image's older musterpoint tells of nothing
        phase = "started" if self.phase == PHASES[0] and last_output is not None else self.phase
        return Columns(self.host, phase, detail, silent, took, shade)


class Columns(NamedTuple):
    """The texts of a line, from left to right, and the colour of the phase (0: none)."""

    host: str
    phase: str
    detail: str
    silent: str
    took: str
    shade: int


def clock(seconds: float) -> str:
    """``1:02`` or ``1:01:02``."""
    minutes, rest = divmod(int(max(seconds, 0.0)), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def ago(seconds: float) -> str:
    """``now``, or ``5 s ago``, or as a clock."""
    if seconds < 1:
        return "now"
    return f"{int(seconds)} s ago" if seconds < 60 else f"{clock(seconds)} ago"


def lines(columns: list[Columns], width: int, most: int, colour: bool) -> list[str]:
    """At most ``most`` lines of ``width`` columns; where there are more hosts, the last line counts the rest."""
    shown = columns if len(columns) <= most else columns[: most - 1]
    wide = [max(len(str(each[at])) for each in columns) for at in range(4)]
    texts = []
    for each in shown:
        cells = [str(each[at]).ljust(wide[at]) for at in range(4)]
        room = max(0, width - 3 - len(each.took))
        while len(cells) > 2 and len("  ".join(filter(None, cells))) > room:
            del cells[2 if len(cells) > 3 else -1]  # how many ranks live, then the silence
        text = "  ".join(cell for cell in cells if cell)[:room]
        text = f"{text}  {each.took}"[: width - 1]
        if colour and each.shade:
            begin, end = wide[0] + 2, min(wide[0] + 2 + len(each.phase), len(text))
            text = f"{text[:begin]}\x1b[{each.shade}m{text[begin:end]}\x1b[0m{text[end:]}"
        texts.append(text)
    rest = columns[len(shown) :]
    if rest:
        ended = sum(each.phase.startswith("ended") for each in rest)
        texts.append(f"and {len(rest)} more hosts, {ended} of them ended"[: width - 1])
    return texts


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
                line.hear(str(event), dict(facts), self._loop.clock())
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
