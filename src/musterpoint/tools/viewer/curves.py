"""The metrics that a job printed → curves: each metric's values over time, a line for each host."""

from __future__ import annotations

import json
import math
import os
from typing import Any, NamedTuple, Sequence

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
    """The curves of the job in ``folder``; none where it had no metrics. What isn't a value is passed over.

    A line of the file has MetricName, Host, Timestamp (seconds since the epoch) and Value.
    """
    found: dict[str, dict[str, list[tuple[float, float]]]] = {}
    lasts: dict[str, float] = {}
    try:
        with open(os.path.join(folder, FILE), encoding="utf-8", errors="replace", opener=open_regular) as file:
            for line in iter(lambda: file.readline(_LONGEST_LINE), ""):
                row = _row(line)
                if row is None or (row[0] not in found and len(found) == MOST_CURVES):
                    continue
                name, host, at, lasts[name] = row
                found.setdefault(name, {}).setdefault(host, []).append((round(at - began, 3), lasts[name]))
    except OSError:
        return ()
    return tuple(
        Curve(name, tuple(Line(host, thinned(hosts[host]), len(hosts[host])) for host in natural(hosts)), lasts[name])
        for name, hosts in found.items()
    )


def _row(line: str) -> tuple[str, str, float, float] | None:
    """Name, host, time and value of a line; None where it has none."""
    try:
        row: dict[str, Any] = json.loads(line)
        name, host = row["MetricName"], row["Host"]
        numbers = [float(row[key]) for key in ("Timestamp", "Value") if type(row[key]) in (int, float)]
    except (ValueError, RecursionError, KeyError, TypeError, OverflowError):
        return None
    if not isinstance(name, str) or not isinstance(host, str) or len([*filter(math.isfinite, numbers)]) < 2:
        return None
    return printable(name, _LONGEST_NAME), printable(host, _LONGEST_NAME), numbers[0], numbers[1]


def thinned(points: Sequence[tuple[float, float]], most: int = MOST_POINTS) -> tuple[tuple[float, float], ...]:
    """At most ``most`` of ``points``: the first, the last, and the lowest and highest of each stretch between them."""
    if len(points) <= most:
        return tuple(points)
    kept, stretches = {0, len(points) - 1}, (most - 2) // 2
    for number in range(stretches):
        ends = [1 + each * (len(points) - 2) // stretches for each in (number, number + 1)]
        kept |= {choose(range(*ends), key=lambda at: points[at][1]) for choose in (min, max)}
    return tuple(points[at] for at in sorted(kept))
