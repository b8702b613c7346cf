"""A history as one HTML page that needs no network: ``page.html`` with the data in it."""

from __future__ import annotations

import html
import json
from importlib.resources import files
from typing import Any, Sequence

from musterpoint.tools.viewer.answers import answers
from musterpoint.tools.viewer.curves import to_json
from musterpoint.tools.viewer.events import numbered
from musterpoint.tools.viewer.history import History
from musterpoint.tools.viewer.lanes import Lane, Row, Span

MOST_EVENTS = 20_000
"""Events in the page; a browser is slow with more."""
MOST_UNFOLDED = 32
"""Processes up to which every lane is open, and hosts and ranks stay in their order: a screen holds about as many."""


def to_html(history: History, lanes: Sequence[Lane], within: bool = False) -> str:
    """The page. Nothing of the data can become markup or script: it is JSON whose ``<`` are escaped. ``within``: it is
    part of another page, which has the job's name, its reason and its metrics already.
    """
    data = json.dumps({**_data(history, lanes), "within": within}, separators=(",", ":"), allow_nan=False)
    for mark, escaped in (("<", "\\u003c"), (">", "\\u003e"), ("&", "\\u0026"), ("\u2028", "\\u2028")):
        data = data.replace(mark, escaped)
    page, curves = own_file("page.html"), own_file("curves.js")
    return page.replace("{{title}}", html.escape(history.name)).replace("{{curves}}", curves).replace("{{data}}", data)


def own_file(name: str) -> str:
    """The text of a file beside this module."""
    return files(__package__).joinpath(name).read_text(encoding="utf-8")


def _data(history: History, lanes: Sequence[Lane]) -> dict[str, Any]:
    marks = [(mark.at, lane.host, mark.kind, mark.text, mark.main) for lane in lanes for mark in lane.marks]
    large = sum(len(lane.rows) for lane in lanes) > MOST_UNFOLDED
    return {
        "name": history.name,
        "began": history.began,
        "seconds": history.seconds,
        "reason": str(history.outcome.get("reason", "")),
        "answers": answers(history, lanes),
        "attempts": _attempts(history),
        "failed": _failed(history),
        "moved": large and any(lane.faults for lane in lanes),
        "curves": to_json(history.curves),
        "lanes": [_lane(lane, large) for lane in (_culprits_first(lanes) if large else lanes)],
        "events": sorted(sorted(marks, key=lambda mark: not mark[-1])[:MOST_EVENTS]),
        "left_out": max(0, len(marks) - MOST_EVENTS),
    }


def _failed(history: History) -> float | None:
    """When what ended the last attempt began: the exception of a rank that then took its time to end, too."""
    fault = next((fault for fault in history.faults if fault.attempt == history.attempts), None)
    if fault is None or fault.at is None:
        return None
    raised = (
        moment.at
        for moment in history.moments
        if moment.event == "rank-raised" and moment.attempt == fault.attempt and moment.facts.get("rank") == fault.rank
    )
    return min(fault.at, next(raised, fault.at))


def _attempts(history: History) -> list[list[Any]]:
    """When each attempt began, with its name; nothing where there was only one."""
    if history.attempts == 1:
        return []
    begins: dict[int, float] = {1: 0.0}
    for moment in history.moments:
        begins.setdefault(moment.attempt, moment.at)
    return [[at, numbered(attempt, history.attempts)] for attempt, at in sorted(begins.items())]


def _culprits_first(lanes: Sequence[Lane]) -> list[Lane]:
    """The host that failed first in the last attempt, then those of earlier ones, then the others."""
    return sorted(lanes, key=lambda lane: -max(lane.faults, default=0))


def _lane(lane: Lane, large: bool) -> dict[str, Any]:
    return {
        "host": lane.host,
        "code": lane.code,
        "first": lane.faults,
        "folded": large and not lane.faults,
        "spans": [_span(span) for span in lane.spans],
        "marks": [[mark.at, mark.kind, mark.text] for mark in lane.marks],
        "rows": [_row(row) for row in (_culprit_on_top(lane.rows) if large else lane.rows)],
    }


def _culprit_on_top(rows: Sequence[Row]) -> list[Row]:
    return sorted(rows, key=lambda row: -max((run.attempt for run in row.runs if run.first), default=0))


def _row(row: Row) -> dict[str, Any]:
    return {
        "name": row.name,
        "runs": [
            {"ended": run.ended, "failed": run.failed, "first": run.first, "spans": [_span(span) for span in run.spans]}
            for run in row.runs
        ],
    }


def _span(span: Span) -> list[Any]:
    return [span.begin, span.end, span.phase, span.text]
