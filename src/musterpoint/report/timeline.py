"""The timeline file of one host: what happened when, as JSON."""

from __future__ import annotations

import os
from typing import Any, Callable

from musterpoint.job.model import Paths
from musterpoint.report.files import put
from musterpoint.report.room import outcome_of
from musterpoint.timeline import Timeline


def write(timeline: Timeline, paths: Paths, mask: Callable[[Any], Any] = lambda facts: facts) -> list[str]:
    """Writes ``timeline.json`` beside the failure file, each moment as ``mask`` makes it.

    Returns what could not be written, as sentences.
    """
    outcome = outcome_of(paths)
    if not outcome:
        return []
    import json

    rows = ",\n ".join(json.dumps(mask(row), ensure_ascii=False, default=str) for row in timeline.to_json())
    problem = put(os.path.join(os.path.dirname(outcome), "timeline.json"), f"[{rows}]\n".encode("utf-8", "replace"))
    return [problem] if problem else []
