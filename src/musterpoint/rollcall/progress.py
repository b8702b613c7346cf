"""Which hosts are here, which aren't, and why: as one line while waiting, as a table at the end."""

from __future__ import annotations

from typing import Callable, Literal, NamedTuple, get_args

from musterpoint.channel.context import Context
from musterpoint.loop import Timer

Stage = Literal["name", "connect", "hello", "seated"]
"""How far a host is: its name is being looked up; it hasn't called; it is being identified; it is here."""
STAGES: tuple[Stage, ...] = get_args(Stage)

_MOST_GROUPS = 3
_MOST_NAMES = 4
_MOST_ROWS = 40


class Row(NamedTuple):
    """One host that isn't here. ``address`` is what is known of where it is."""

    host: str
    stage: Stage
    detail: str
    address: str = ""


def sentence(total: int, rows: list[Row]) -> str:
    """``998 of 1000 hosts here; waiting for algo-7 (…), algo-9 and algo-12 (…)``; hosts with one trouble share it."""
    here = f"{total - len(rows)} of {total} hosts here"
    if not rows:
        return here
    groups: dict[str, list[str]] = {}
    for row in rows:
        groups.setdefault(row.detail, []).append(row.host)
    parts = [f"{_names(hosts)} ({detail})" for detail, hosts in list(groups.items())[:_MOST_GROUPS]]
    more = sum(len(hosts) for hosts in list(groups.values())[_MOST_GROUPS:])
    if more:
        parts.append(f"and {more} more")
    return f"{here}; waiting for {', '.join(parts)}"


def table(headline: str, total: int, rows: list[Row], notes: list[str]) -> str:
    """The headline, then host, stage and detail of each missing host in columns, then what else is odd."""
    shown = rows[:_MOST_ROWS]
    wide = max(len(host) for host in ("host", *(row.host for row in shown)))
    lines = [headline, f"{'host':{wide}}  {'stage':7}  detail"]
    for row in shown:
        where = f"{row.address}: " if row.address else ""
        lines.append(f"{row.host:{wide}}  {row.stage:7}  {where}{row.detail}")
    if len(rows) > _MOST_ROWS:
        rest = rows[_MOST_ROWS:]
        counts = [f"{sum(row.stage == stage for row in rest)} at {stage}" for stage in STAGES]
        lines.append(f"… and {len(rest)} more: " + ", ".join(text for text in counts if not text.startswith("0 ")))
    lines.append(f"{total - len(rows)} of {total} hosts are here")
    return "\n".join(lines + notes)


def _names(hosts: list[str]) -> str:
    if len(hosts) <= _MOST_NAMES:
        return ", ".join(hosts)
    return f"{', '.join(hosts[: _MOST_NAMES - 1])} and {len(hosts) - _MOST_NAMES + 1} more"


class ProgressPrinter:
    """Prints what ``line()`` gives when it has changed: after the longest pause between two tries, then at most once
    every ``progress`` seconds.
    """

    def __init__(self, context: Context, line: Callable[[], str]) -> None:
        self._loop = context.loop
        self._say = context.log.say
        self._pause = context.timeouts.progress
        self._line = line
        self._last = ""
        self._timer: Timer | None = self._loop.call_later(context.timeouts.retry_most, self._print)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None

    def _print(self) -> None:
        line = self._line()
        if line != self._last:
            self._say(line)
            self._last = line
        self._timer = self._loop.call_later(self._pause, self._print)
