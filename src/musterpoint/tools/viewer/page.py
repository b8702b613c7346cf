"""A history as one HTML page that needs no network: ``page.html`` with the data in it."""

from __future__ import annotations

import html
import json
from importlib.resources import files
from typing import Any, Sequence

from musterpoint.tools.viewer.answers import answers
from musterpoint.tools.viewer.history import History
from musterpoint.tools.viewer.lanes import Lane, Span

MOST_EVENTS = 20_000
"""Events in the page; a browser is slow with more."""


def to_html(history: History, lanes: Sequence[Lane]) -> str:
    """The page. Nothing of the data can become markup or script: it is JSON whose ``<`` are escaped."""
    data = json.dumps(_data(history, lanes), separators=(",", ":"), allow_nan=False)
    for mark, escaped in (("<", "\\u003c"), (">", "\\u003e"), ("&", "\\u0026"), ("\u2028", "\\u2028")):
        data = data.replace(mark, escaped)
    text = files(__package__).joinpath("page.html").read_text(encoding="utf-8")
    return text.replace("{{title}}", html.escape(history.name)).replace("{{data}}", data)


def _data(history: History, lanes: Sequence[Lane]) -> dict[str, Any]:
    marks = [(mark.at, lane.host, mark.kind, mark.text) for lane in lanes for mark in lane.marks]
    return {
        "name": history.name,
        "began": history.began,
        "seconds": history.seconds,
        "reason": str(history.outcome.get("reason", "")),
        "answers": answers(history, lanes),
        "lanes": [
            {
                "host": lane.host,
                "code": lane.code,
                "spans": [_span(span) for span in lane.spans],
                "marks": [[mark.at, mark.kind, mark.text] for mark in lane.marks],
                "rows": [
                    {"name": row.name, "ended": row.ended, "failed": row.failed, "spans": [_span(s) for s in row.spans]}
                    for row in lane.rows
                ],
            }
            for lane in lanes
        ],
        "events": sorted(marks)[:MOST_EVENTS],
        "left_out": max(0, len(marks) - MOST_EVENTS),
    }


def _span(span: Span) -> list[Any]:
    return [span.begin, span.end, span.phase, span.text]
