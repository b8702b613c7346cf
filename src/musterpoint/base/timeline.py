"""The timeline: what happened when on this host."""

import time
from typing import Any, Callable

from musterpoint.base.records import NamedTuple

CONTROL_PLANE = "control plane"
"""The host of the events of the platform's side, which ``muster local`` plays."""
MOST_OF_A_NAME = 20_000
"""Moments of one name that are kept, so that repeated events don't fill the disk."""


class Moment(NamedTuple):
    """``at`` is seconds since the epoch; ``name`` is an event such as ``rank-ended``; ``facts`` are JSON values."""

    at: float
    name: str
    facts: dict[str, Any]


class Timeline:
    """A list of moments; any thread may add. ``host`` is this host; a fact called ``host`` is written as ``of``.

    Beyond :data:`MOST_OF_A_NAME` moments of one name, the last one kept counts those ``left_out``.
    """

    def __init__(self, host: str = "") -> None:
        self._host = host
        self.moments: list[Moment] = []
        self._counts: dict[str, int] = {}
        self._last: dict[str, Moment] = {}
        self._sink: Callable[[str, dict[str, Any]], None] | None = None

    def pass_on(self, sink: Callable[[str, dict[str, Any]], None]) -> None:
        """``sink`` gets every event and its facts as well, from those recorded before on."""
        self._sink = sink
        for moment in self.moments:
            sink(moment.name, moment.facts)

    def set_host(self, host: str) -> None:
        """``host`` is this host, also for moments recorded before."""
        self._host = host

    def add(self, event: str, /, **facts: Any) -> None:
        if self._sink is not None:
            self._sink(event, facts)
        count = self._counts[event] = self._counts.get(event, 0) + 1
        if count <= MOST_OF_A_NAME:
            moment = self._last[event] = Moment(time.time(), event, facts)
            self.moments.append(moment)
        else:
            self._last[event].facts["left_out"] = count - MOST_OF_A_NAME

    def to_json(self) -> list[dict[str, Any]]:
        """A list of ``{"host", "at", "time", "event", …facts}``, oldest first; ``time`` is ``at`` in ISO 8601, UTC."""
        return [
            {
                "host": self._host,
                "at": micros / 1e6,
                "time": _iso(micros),
                "event": moment.name,
                **{("of" if name == "host" else name): fact for name, fact in moment.facts.items()},
            }
            for moment in self.moments
            for micros in (round(moment.at * 1e6),)
        ]


def _iso(micros: int) -> str:
    """Microseconds since the epoch as ISO 8601, in UTC."""
    whole, parts = divmod(micros, 1_000_000)
    return f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(whole))}.{parts:06d}Z"
