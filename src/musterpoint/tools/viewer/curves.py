"""The metrics that a job printed → curves: each metric's values over time, a line for each host."""

from __future__ import annotations

import json
import math
import os
from typing import Any, Iterable, NamedTuple, Sequence

from musterpoint.base.untrusted import open_regular, printable
from musterpoint.core.job.host_order import natural

FILE = "metrics.jsonl"
"""Beside the timeline, from ``muster local --metric``; a line for each value."""
MOST_POINTS = 400
"""Points of a line in the page: a screen shows no more."""
MOST_CURVES = 64
_LONGEST_LINE = 4096
_LONGEST_NAME = 255


class Line(NamedTuple):
    """What ``host`` printed: moments (seconds since the job began) and values, oldest first. ``total``: of how many."""

    host: str
    points: tuple[tuple[float, float], ...]
    total: int


class Curve(NamedTuple):
    """A metric by its ``name``, with a line for each host that printed it. ``last``: its last value."""

    name: str
    lines: tuple[Line, ...]
    last: float


def read_curves(folder: str, began: float) -> tuple[Curve, ...]:
    """The curves of the job in ``folder``; none where it had no metrics. What isn't a value is passed over."""
    try:
        with open(os.path.join(folder, FILE), encoding="utf-8", errors="replace", opener=open_regular) as file:
            return curves_of(_rows(iter(lambda: file.readline(_LONGEST_LINE), "")), began)
    except OSError:
        return ()


def _rows(lines: Iterable[str]) -> Iterable[dict[str, Any]]:
    for line in lines:
        try:
            row = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(row, dict):
            yield row


def curves_of(rows: Iterable[dict[str, Any]], began: float) -> tuple[Curve, ...]:
    """The curves of ``rows``, which have MetricName, Host, Timestamp (seconds since the epoch) and Value."""
    found: dict[str, dict[str, list[tuple[float, float]]]] = {}
    lasts: dict[str, float] = {}
    for row in rows:
        name, host = row.get("MetricName"), row.get("Host")
        at, value = _number(row.get("Timestamp")), _number(row.get("Value"))
        if not isinstance(name, str) or not isinstance(host, str) or at is None or value is None:
            continue
        name, host = printable(name, _LONGEST_NAME), printable(host, _LONGEST_NAME)
        if name in found or len(found) < MOST_CURVES:
            found.setdefault(name, {}).setdefault(host, []).append((at - began, value))
            lasts[name] = value
    return tuple(
        Curve(name, tuple(Line(host, thinned(hosts[host]), len(hosts[host])) for host in natural(hosts)), lasts[name])
        for name, hosts in found.items()
    )


def thinned(points: Sequence[tuple[float, float]], most: int = MOST_POINTS) -> tuple[tuple[float, float], ...]:
    """At most ``most`` of ``points``: the first, the last, and the lowest and highest of each stretch between them."""
    if len(points) <= most:
        return tuple(points)
    kept = [0, len(points) - 1]
    stretches = (most - 2) // 2
    for number in range(stretches):
        begin = 1 + number * (len(points) - 2) // stretches
        end = 1 + (number + 1) * (len(points) - 2) // stretches
        indexes = range(begin, end)
        kept += [min(indexes, key=lambda at: points[at][1]), max(indexes, key=lambda at: points[at][1])]
    return tuple(points[at] for at in sorted(set(kept)))


def to_json(curves: Sequence[Curve]) -> list[dict[str, Any]]:
    """For the page's script."""
    return [{"name": curve.name, "last": curve.last, "lines": [*map(_line, curve.lines)]} for curve in curves]


def _line(line: Line) -> list[Any]:
    return [line.host, [[round(at, 3), value] for at, value in line.points], line.total]


def _number(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None
