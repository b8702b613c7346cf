"""What ``muster local`` shows of each host below the log: its phase, ranks, last output and time, from its events."""

from __future__ import annotations

from typing import Any, Mapping, NamedTuple

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


class HostLine:
    """One host's line. ``began``: when it was started, on the clock of all times here (seconds)."""

    def __init__(self, host: str, began: float) -> None:
        self.host = host
        self.phase = PHASES[0]
        self.code: int | None = None
        self._began = began
        self._ended = 0.0
        self._ranks: dict[int, bool] = {}
        self._hosts = self._here = 0

    def hear(self, event: str, facts: Mapping[str, Any]) -> None:
        """The host's entry point, or one of several there, tells of an event; a phase never goes back."""
        if event == "restart":
            self._ranks.clear()
            self.phase = "launching"
        elif event == "rollcall-started":
            self._hosts, self._here = int(facts.get("hosts", 0)), 1
        elif event == "host-here":
            self._here += 1
        elif event == "rank-started":
            self._ranks[int(facts.get("rank", -1))] = True
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
        text = "  ".join((*(cell for cell in cells if cell), each.took))[: width - 1]
        if colour and each.shade:
            begin, end = wide[0] + 2, min(wide[0] + 2 + len(each.phase), len(text))
            text = f"{text[:begin]}\x1b[{each.shade}m{text[begin:end]}\x1b[0m{text[end:]}"
        texts.append(text)
    rest = columns[len(shown) :]
    if rest:
        ended = sum(each.phase.startswith("ended") for each in rest)
        texts.append(f"and {len(rest)} more hosts, {ended} of them ended"[: width - 1])
    return texts
