"""A history as text: the answers, a table of the hosts, and what happened in order."""

from __future__ import annotations

from typing import Iterator, Sequence

from musterpoint.base.timeline import CONTROL_PLANE
from musterpoint.base.untrusted import printable
from musterpoint.tools.viewer.answers import answers, took
from musterpoint.tools.viewer.events import Moment, meaning_of
from musterpoint.tools.viewer.history import History
from musterpoint.tools.viewer.lanes import Lane

_WIDEST = 200
_RED, _BOLD, _PLAIN = "\x1b[31m", "\x1b[1m", "\x1b[0m"
_MOST_ALIKE = 3
"""Events of one name on one host in a row that are shown without ``--all``."""
_HEAD = (
    "host", "attempt", "entry point", "made ready", "roll call", "first rank", "first output", "last end", "code", "",
)  # fmt: skip


def to_text(history: History, everything: bool = False, colour: bool = False) -> str:
    """The page as text. ``everything``: every event. ``colour``: with a terminal's colours."""
    wide = max(len(host) for host in (*history.hosts, CONTROL_PLANE))
    lines = [_shaded(history.name, _BOLD, colour), *answers(history), ""]
    for line, failed in _hosts(history):
        lines.append(_shaded(line, _RED, colour and failed))
    lines += ["", f"{'seconds':>9}  {'host':<{wide}}  what happened"]
    shown = history.moments if everything else tuple(_main(history.moments))
    for moment in shown:
        kind, said = history.told(moment)
        text = f"{moment.at:9.3f}  {moment.host:<{wide}}  {printable(said, _WIDEST)}"
        lines.append(_shaded(text, _RED, colour and kind == "failure"))
    if len(shown) < len(history.moments):
        lines.append(f"{len(history.moments) - len(shown)} more events: --all shows them")
    return "\n".join(lines) + "\n"


def _shaded(text: str, shade: str, colour: bool) -> str:
    return f"{shade}{text}{_PLAIN}" if colour else text


def _main(moments: Sequence[Moment]) -> Iterator[Moment]:
    """The moments that matter to most readers."""
    before, alike = ("", ""), 0
    for moment in moments:
        alike = alike + 1 if before == (moment.host, moment.event) else 1
        before = (moment.host, moment.event)
        if meaning_of(moment.event).main and alike <= _MOST_ALIKE:
            yield moment


def _hosts(history: History) -> Iterator[tuple[str, bool]]:
    """The table of the hosts, a line for each attempt, and whether the line has what failed first."""
    names = {fault.attempt: "" if fault.rank is None else f"rank {fault.rank} " for fault in history.faults}
    rows: list[tuple[str, ...]] = [_HEAD]
    failed = [False]
    for lane in history.lanes:
        for attempt in sorted({1, history.attempts, *lane.codes, *(span.attempt for span in lane.spans)}):
            first = attempt in lane.faults
            rows.append(_host(history, lane, attempt, f"{names[attempt]}failed first" if first else ""))
            failed.append(first)
    columns = [*zip(*rows)]
    if history.attempts == 1:
        columns.pop(1)
    widths = [max(map(len, column)) for column in columns]
    for cells, first in zip(zip(*columns), failed):
        line = "  ".join(
            cell.rjust(width) if 0 < at < len(widths) - 1 else cell.ljust(width)
            for at, (cell, width) in enumerate(zip(cells, widths))
        )
        yield line.rstrip(), first


def _host(history: History, lane: Lane, attempt: int, said: str) -> tuple[str, ...]:
    phases = [lane.of("prepare", attempt), lane.of("rollcall", attempt)]
    runs = lane.ran(attempt)
    starts = [run.spans[0].begin for run in runs]
    wrote = [run.spans[1].begin for run in runs if len(run.spans) == 2]
    ends = [run.spans[-1].end for run in runs]
    code = lane.code if attempt == history.attempts else lane.codes.get(attempt)
    return (
        lane.host,
        f"{attempt} of {history.attempts}",
        f"at {phases[0].begin:.3f}" if phases[0] else "-",
        *(took(span.seconds) if span else "-" for span in phases),
        *(f"at {min(times):.3f}" if times else "-" for times in (starts, wrote)),
        f"at {max(ends):.3f}" if ends else "-",
        "?" if code is None else str(code),
        said,
    )
