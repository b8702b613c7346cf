"""The hosts' lines below the log of ``muster local``: phase, ranks, last output and time of each, from its events.

:class:`LiveView` keeps them on the terminal while a job runs, by ``rich.live``.
"""

from __future__ import annotations

import contextlib
import importlib.util
import io
import json
import os
import re
import threading
from typing import TYPE_CHECKING, Any, Mapping, NamedTuple, Sequence

from musterpoint.base.console import Console
from musterpoint.base.event_pipe import FILE
from musterpoint.base.loop import READ, Loop, Timer
from musterpoint.base.terminal import colours, is_terminal
from musterpoint.local.output import LONGEST_LINE, Pump, left, recent

if TYPE_CHECKING:
    from rich.console import Group

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
_ESCAPE = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]?|\][^\x07\x1b]*(?:\x07|\x1b\\)?|.)?")
"""Sequences that an unfinished line may have: they would move the cursor, or colour what follows."""
_TICK = 1.0
_CHUNK = 65536
_SHARE = 3
"""The lines take a third of the screen at most."""
LEAST_ROWS = 6
"""Rows that stay for the job's output; on a smaller terminal no lines are shown."""
_WIDE, _NARROW = 70, 50
"""Columns of a terminal from which on a line has the number of ranks, and the last output."""
_CLOSE_SECONDS = 2.0
"""For the terminal to take the end of the lines."""


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
            return Columns(self.host, f"ended with code {self.code}", "", "", took, "red" if self.code else "")
        detail = ""
        if self._ranks:
            detail = f"{sum(self._ranks.values())} of {len(self._ranks)} ranks alive"
        elif self.phase in ("names", "roll call") and self._hosts:
            detail = f"{min(self._here, self._hosts)} of {self._hosts} hosts here" if self._here > 1 else ""
        silent = "" if last_output is None else f"last output {ago(now - last_output)}"
        if self._launched is not None and any(self._ranks.values()) and (last_output or 0.0) < self._launched:
            silent = f"no output yet, {clock(now - self._launched)}"
        shade = "green" if self.phase == "running" else "yellow" if self.phase in ("stopping", "waiting") else ""
        # an image's older musterpoint tells of nothing
        phase = "started" if self.phase == PHASES[0] and last_output is not None else self.phase
        return Columns(self.host, phase, detail, silent, took, shade)


class Columns(NamedTuple):
    """The texts of a line, from left to right, and the colour of the phase (empty: none)."""

    host: str
    phase: str
    detail: str
    silent: str
    took: str
    shade: str


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


def table_of(columns: Sequence[Columns], width: int, most: int) -> Group:
    """Makes at most ``most`` lines for ``width`` columns; of more hosts the last line counts the rest."""
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    shown = columns if len(columns) <= most else columns[: most - 1]
    fits = (True, True, width >= _WIDE, width >= _NARROW, True)
    kept = [at for at in range(len(fits)) if fits[at] and any(each[at] for each in shown)]
    table = Table.grid(padding=(0, 2, 0, 0))
    for _ in kept:
        table.add_column(no_wrap=True)
    for each in shown:
        table.add_row(*(Text(str(each[at]), each.shade if at == 1 else "") for at in kept))
    if rest := columns[len(shown) :]:
        ended = sum(each.phase.startswith("ended") for each in rest)
        return Group(table, Text(f"and {len(rest)} more hosts, {ended} of them ended", no_wrap=True))
    return Group(table)


def can_be_shown(out: int, environ: Mapping[str, str]) -> bool:
    """Tells whether ``out`` is a terminal that can keep rows of its own, and rich is there."""
    return is_terminal(out) and environ.get("TERM", "dumb") != "dumb" and importlib.util.find_spec("rich") is not None


class LiveArea:
    """Rows below a terminal's log; for one thread. Its methods return bytes to write to the terminal.

    Whole lines of the log scroll above the rows. An unfinished one, such as a progress bar, is the first of them.
    """

    def __init__(self, colour: bool) -> None:
        from rich.console import Console, Group
        from rich.live import Live

        self._written = io.StringIO()
        self._screen = Console(
            file=self._written, force_terminal=True, force_interactive=True, no_color=not colour, highlight=False
        )
        self._live = Live(console=self._screen, auto_refresh=False, transient=True, vertical_overflow="crop",
                          redirect_stdout=False, redirect_stderr=False)  # fmt: skip
        self._rows, self._rest = Group(), b""

    def draw(self, columns: Sequence[Columns], size: tuple[int, int]) -> bytes:
        """Shows the lines of hosts on a terminal of ``size``, columns and rows; on a small one there are none."""
        from rich.console import Group

        self._screen.size = size
        self._rows = table_of(columns, size[0], max(1, size[1] // _SHARE)) if size[1] > LEAST_ROWS else Group()
        self._live.start()
        return self._refreshed()

    def write(self, data: bytes) -> bytes:
        """Writes ``data`` of the log above the rows."""
        if not self._live.is_started:
            return data
        data = self._rest + data
        end = data.rfind(b"\n") + 1
        whole, self._rest = data[:end], recent(data[end:])
        if len(self._rest) > LONGEST_LINE:
            whole, self._rest = whole + self._rest + b"\n", b""
        return self._refreshed(whole)

    def _refreshed(self, whole: bytes = b"") -> bytes:
        from rich.console import Group
        from rich.segment import Segment, Segments
        from rich.text import Text

        columns = self._screen.size.width
        tail = _ESCAPE.sub("", left(self._rest).decode("utf-8", "replace"))[-_SHARE * columns :]
        self._live.update(Group(*([Text(tail)] if tail else []), self._rows))
        if whole:
            colours_end = "\x1b[0m" if b"\x1b[" in whole else ""  # the lines are no part of the job's
            text = whole.decode("utf-8", "surrogateescape") + colours_end
            self._screen.print(Segments([Segment(text)]), end="", crop=False)
        self._live.refresh()
        return self._taken()

    def _taken(self) -> bytes:
        text = self._written.getvalue()
        self._written.seek(0)
        self._written.truncate()
        return text.encode("utf-8", "surrogateescape")

    def close(self) -> bytes:
        """Takes the rows away."""
        self._live.stop()
        rest, self._rest = self._rest, b""
        return self._taken() + rest


class LiveView:
    """The lines of a job's hosts on the terminal ``out``, below what ``pump`` and ``console`` write there."""

    def __init__(self, loop: Loop, pump: Pump, console: Console, out: int, environ: Mapping[str, str]) -> None:
        self._loop, self._pump, self._console, self._out = loop, pump, console, out
        self._area = LiveArea(colours(out, environ))  # the pump's thread's
        self._lines: dict[str, HostLine] = {}
        self._pipes: dict[int, tuple[str, str]] = {}
        self._rest: dict[int, bytes] = {}
        self._timer: Timer | None = None
        self._closed = threading.Event()

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
        """Shows the lines from now on."""
        self._pump.through = self._area.write
        if is_terminal(2):
            self._own_sink = self._console.write_through(
                lambda data: self._pump.overlay(lambda: self._area.write(data))
            )
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
            if is_terminal(2):
                self._console.write_through(self._own_sink)
            self._pump.overlay(self._close_area)
            self._closed.wait(_CLOSE_SECONDS)
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
        self._pump.overlay(lambda: self._area.draw(columns, (size.columns, size.lines)), may_wait=False)

    def _close_area(self) -> bytes:
        self._pump.through = bytes
        self._closed.set()
        return self._area.close()
