"""A history as one HTML page that needs no network: ``page.html`` with the data in it."""

from __future__ import annotations

import html
import json
from importlib.resources import files
from typing import Any

from musterpoint.tools.viewer.events import meaning_of, numbered
from musterpoint.tools.viewer.history import History
from musterpoint.tools.viewer.text import answers

MOST_EVENTS = 20_000
"""Events in the page; a browser is slow with more."""
MOST_UNFOLDED = 32
"""Processes up to which every lane is open, and hosts and ranks stay in their order: a screen holds about as many."""


def to_html(history: History, within: bool = False) -> str:
    """The page. Nothing of the data can become markup or script: it is JSON whose ``<`` are escaped. ``within``: it is
    part of another page, which has the job's name, its reason and its metrics already.
    """
    data = json.dumps({**_data(history), "within": within}, separators=(",", ":"), allow_nan=False)
    data = data.replace("<", "\\u003c")
    page, curves = own_file("page.html"), own_file("curves.js")
    return page.replace("{{title}}", html.escape(history.name)).replace("{{curves}}", curves).replace("{{data}}", data)


def own_file(name: str) -> str:
    """The text of a file beside this module."""
    return files(__package__).joinpath(name).read_text(encoding="utf-8")


def _data(history: History) -> dict[str, Any]:
    events = [(each.at, each.host, *history.told(each), meaning_of(each.event).main) for each in history.moments]
    lanes = history.lanes
    large = sum(len({run.name for run in lane.runs}) for lane in lanes) > MOST_UNFOLDED
    if large:  # what failed first in the last attempt is on top, then that of earlier ones
        lanes = tuple(sorted(lanes, key=lambda lane: -max(lane.faults, default=0)))
    begins = {moment.attempt: moment.at for moment in reversed(history.moments)}
    begins[1] = 0.0
    attempts = [(at, numbered(attempt, history.attempts)) for attempt, at in sorted(begins.items())]
    fault = next((fault for fault in history.faults if fault.attempt == history.attempts), None)
    raised = [each for each in history.moments if each.event == "rank-raised" and each.attempt == history.attempts]
    # the exception of a rank that then took its time to end, too
    failed = [] if fault is None else [fault.at, *(each.at for each in raised if each.facts.get("rank") == fault.rank)]
    return {
        "name": history.name,
        "began": history.began,
        "seconds": history.seconds,
        "curves": history.curves,
        "reason": str(history.outcome.get("reason", "")),
        "answers": answers(history),
        "attempts": attempts if history.attempts > 1 else [],
        "failed": min((at for at in failed if at is not None), default=None),
        "large": large,
        "lanes": lanes,
        "events": sorted(sorted(events, key=lambda event: not event[-1])[:MOST_EVENTS]),
        "left_out": max(0, len(events) - MOST_EVENTS),
    }
