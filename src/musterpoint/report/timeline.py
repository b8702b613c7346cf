"""The timeline file of one host: what happened when, as JSON."""

from __future__ import annotations

import os
from typing import Any, Callable

from musterpoint.job.model import Paths
from musterpoint.report.files import put
from musterpoint.timeline import Timeline


def write(timeline: Timeline, paths: Paths, mask: Callable[[Any], Any] = lambda facts: facts) -> list[str]:
    """Writes ``timeline.json`` beside the failure file, each moment as ``mask`` makes it.

    Returns what could not be written, as sentences.
    """
    beside = os.path.dirname(paths.failure) or paths.output
    if not beside:
        return []
    import json

    rows = ",\n ".join(json.dumps(mask(row), ensure_ascii=False, default=str) for row in timeline.to_json())
    problem = put(os.path.join(beside, "timeline.json"), f"[{rows}]\n".encode("utf-8", "replace"))
    return [problem] if problem else []
