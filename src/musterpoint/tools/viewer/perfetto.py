"""A history as a trace for https://ui.perfetto.dev: a process per host, a thread for its phases and for each rank.

The format is Chrome's Trace Event Format (JSON object form), which Perfetto reads.
"""

from __future__ import annotations

import json
from itertools import groupby
from typing import Any, Iterable

from musterpoint.tools.viewer.events import numbered
from musterpoint.tools.viewer.history import History
from musterpoint.tools.viewer.lanes import Run, Span


def to_perfetto(history: History) -> str:
    """The trace as JSON; times in microseconds since the job began."""
    events: list[dict[str, Any]] = []
    for pid, lane in enumerate(history.lanes, 1):
        events.append(_name("process_name", pid, 0, lane.host))
        events.append({"ph": "M", "name": "process_sort_index", "pid": pid, "args": {"sort_index": pid}})
        events.append(_name("thread_name", pid, 0, "host"))
        events += [_slice(span, pid, 0) for span in lane.spans if span.phase != "silence"]
        tid = 0
        for tid, (name, group) in enumerate(groupby(lane.runs, key=lambda run: run.name), 1):
            runs = [*group]
            events.append(_name("thread_name", pid, tid, name + _ends(runs, history.attempts)))
            events += [_slice(span, pid, tid) for run in runs for span in run.spans]
        silences = [span for span in lane.spans if span.phase == "silence"]
        if silences:  # a silence crosses the phases, which slices of one thread must not
            events.append(_name("thread_name", pid, tid + 1, "silence"))
            events += [_slice(span, pid, tid + 1) for span in silences]
    pids = {lane.host: pid for pid, lane in enumerate(history.lanes, 1)}
    for moment in (each for each in history.moments if each.host in pids):
        kind, text = history.told(moment)
        place = {"ts": _micros(moment.at), "pid": pids[moment.host], "tid": 0}
        events.append({"ph": "i", "s": "p", "name": text, "cat": kind, **place})
    return json.dumps({"traceEvents": events, "displayTimeUnit": "ms", "otherData": {"job": history.name}})


def _ends(runs: Iterable[Run], attempts: int) -> str:
    """How the process ended, in each attempt."""
    ends = [(f"{numbered(run.attempt, attempts)}: " if attempts > 1 else "") + run.ended for run in runs if run.ended]
    return f" ({'; '.join(ends)})" if ends else ""


def _name(what: str, pid: int, tid: int, name: str) -> dict[str, Any]:
    return {"ph": "M", "name": what, "pid": pid, "tid": tid, "args": {"name": name}}


def _slice(span: Span, pid: int, tid: int) -> dict[str, Any]:
    return {
        "ph": "X",
        "name": span.text,
        "cat": span.phase,
        "ts": _micros(span.begin),
        "dur": _micros(span.seconds),
        "pid": pid,
        "tid": tid,
        "args": {"attempt": span.attempt},
    }


def _micros(seconds: float) -> float:
    return round(seconds * 1e6, 3)
