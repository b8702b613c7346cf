"""One line of the table that scripts/bench prints."""

from __future__ import annotations

from typing import Any, NamedTuple


class Figure(NamedTuple):
    """``name`` and ``goal`` as people read them, ``measured`` likewise; ``facts`` are the numbers behind (JSON)."""

    name: str
    goal: str
    measured: str
    ok: bool
    facts: dict[str, Any]


def milliseconds(seconds: float) -> str:
    value = seconds * 1000
    return f"{value:.3g} ms" if value < 1000 else f"{value:.0f} ms"
