"""One line of the table that scripts/bench prints, and the bars of its picture."""

from __future__ import annotations

from typing import Any, NamedTuple


class Figure(NamedTuple):
    """``name`` and ``goal`` as people read them, ``measured`` likewise; ``facts`` are the numbers behind (JSON).

    ``bars``: what is compared, each with all values that were taken, in ``unit``; empty: there is no picture.
    ``limit``: the goal in that unit, where it is a value of a bar.
    """

    name: str
    goal: str
    measured: str
    ok: bool
    facts: dict[str, Any]
    bars: dict[str, list[float]] = {}
    unit: str = "ms"
    limit: float | None = None


def milliseconds(seconds: float) -> str:
    value = seconds * 1000
    return f"{value:.3g} ms" if value < 1000 else f"{value:.0f} ms"


def in_milliseconds(seconds: list[float]) -> list[float]:
    return [round(each * 1000, 2) for each in seconds]
