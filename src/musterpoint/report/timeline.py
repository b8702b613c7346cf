"""The timeline file of one host: what happened when, as JSON."""

from __future__ import annotations

from typing import Any, Callable

from musterpoint.report.files import put
from musterpoint.report.room import TIMELINE, Room
from musterpoint.timeline import Timeline


def write(timeline: Timeline, room: Room, mask: Callable[[Any], Any] = lambda facts: facts) -> list[str]:
    """Writes ``timeline.json`` into ``room``, each moment as ``mask`` makes it.

    Returns what could not be written, as sentences.
    """
    if not room.folder:
        return []
    import json

    rows = ",\n ".join(json.dumps(mask(row), ensure_ascii=False, default=str) for row in timeline.to_json())
    problem = put(room, TIMELINE, f"[{rows}]\n".encode("utf-8", "replace"))
    return [problem] if problem else []
