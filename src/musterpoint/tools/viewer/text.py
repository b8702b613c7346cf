"""A history as text: the answers, a table of the hosts, and what happened in order."""

from __future__ import annotations

from typing import Iterable, Iterator, Sequence

from musterpoint.base.timeline import CONTROL_PLANE
from musterpoint.base.untrusted import printable
from musterpoint.tools.viewer.answers import answers, took
from musterpoint.tools.viewer.events import meaning_of, sentence
from musterpoint.tools.viewer.history import History, Moment
from musterpoint.tools.viewer.lanes import Lane, is_rank

_WIDEST = 200
_RED, _BOLD, _PLAIN = "\x1b[31m", "\x1b[1m", "\x1b[0m"
_MOST_ALIKE = 3
"""Events of one name on one host in a row that are shown without ``--all``."""
_HEAD = ("host", "made ready", "roll call", "first rank", "first output", "last end", "code")


def to_text(history: History, lanes: Sequence[Lane], everything: bool = False, colour: bool = False) -> str:
    """The page as text. ``everything``: every event. ``colour``: with a terminal's colours."""
    wide = max(len(host) for host in (*history.hosts, CONTROL_PLANE))
    lines = [_shaded(history.name, _BOLD, colour), *answers(history, lanes), "", *_table([_HEAD, *map(_host, lanes)])]
    lines += ["", f"{'seconds':>9}  {'host':<{wide}}  what happened"]
    shown = history.moments if everything else tuple(_main(history.moments))
    for moment in shown:
        text = printable(sentence(moment.event, moment.facts), _WIDEST)
        text = f"{moment.at:9.3f}  {moment.host:<{wide}}  {text}"
        lines.append(_shaded(text, _RED, colour and meaning_of(moment.event).kind == "failure"))
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


def _host(lane: Lane) -> tuple[str, ...]:
    phases = [lane.of("prepare"), lane.of("rollcall")]
    starts = [row.spans[0].begin for row in lane.rows if is_rank(row)]
    wrote = [row.spans[1].begin for row in lane.rows if len(row.spans) == 2]
    ends = [row.spans[-1].end for row in lane.rows]
    return (
        lane.host,
        *(took(span.seconds) if span else "-" for span in phases),
        *(f"at {min(times):.3f}" if times else "-" for times in (starts, wrote)),
        f"at {max(ends):.3f}" if ends else "-",
        "?" if lane.code is None else str(lane.code),
    )


def _table(rows: Sequence[tuple[str, ...]]) -> Iterable[str]:
    """Rows in columns as wide as what is in them, all but the first to the right."""
    widths = [max(map(len, column)) for column in zip(*rows)]
    for row in rows:
        yield "  ".join(
            cell.rjust(width) if at else cell.ljust(width) for at, (cell, width) in enumerate(zip(row, widths))
        )
