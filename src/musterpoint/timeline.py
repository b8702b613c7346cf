"""What happened when, on this host: recorded as it happens, written by the report."""

import time
from typing import Any, NamedTuple


class Moment(NamedTuple):
    """``at`` is seconds since the epoch; ``name`` is an event such as ``rank-ended``; ``facts`` are JSON values."""

    at: float
    name: str
    facts: dict[str, Any]


class Timeline:
    """Append-only; any thread may add. ``host`` is whose it is; a fact of that name (another host) becomes ``of``."""

    def __init__(self, host: str = "") -> None:
        self.host = host
        self.moments: list[Moment] = []

    def add(self, event: str, /, **facts: Any) -> None:
        self.moments.append(Moment(time.time(), event, facts))

    def to_json(self) -> list[dict[str, Any]]:
        """A list of ``{"host", "at", "event", …facts}``, oldest first."""
        return [
            {
                "host": self.host, "at": round(moment.at, 6), "event": moment.name,
                **{("of" if name == "host" else name): fact for name, fact in moment.facts.items()},
            }
            for moment in self.moments
        ]  # fmt: skip
