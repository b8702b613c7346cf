"""Finds numbers in what a job prints: SageMaker's metric definitions, a name and a regular expression each.

Every match in every line counts, and its first group is the value. Only whole lines are searched; what a progress bar
writes over (``\\r``) is a line, too. Source: SageMaker's guide, "Define Training Metrics"; the bounds are those of the
API's MetricDefinition.
"""

import math
import re
from typing import Any, Callable, Iterable, Protocol

from musterpoint.base.errors import UsageError
from musterpoint.base.records import NamedTuple

LONGEST_NAME, LONGEST_REGEX, MOST_METRICS = 255, 500, 40
LONGEST_LINE = 1 << 16
"""Bytes of an unfinished line that are kept; a longer one is searched in pieces."""
MOST_SLOW = 3
"""Lines whose search may take too long before a metric is given up."""
_LINE_END = re.compile(rb"[\r\n]")


class Pattern(Protocol):
    """A compiled regular expression. A TimeoutError: the search of this line takes too long."""

    def finditer(self, line: str, /) -> Iterable[Any]: ...


class Metric(NamedTuple):
    """``name``: as people call it. ``regex``: as it was given. ``pattern``: compiled; its first group is the value."""

    name: str
    regex: str
    pattern: Pattern


class Point(NamedTuple):
    """A value of the metric ``name`` that ``host`` printed at ``at``, in seconds since the epoch."""

    name: str
    host: str
    at: float
    value: float


class Refused(NamedTuple):
    """A match whose first group is no finite number: the metric's ``name``, and what stood there."""

    name: str
    text: str


def read_metric(name: str, regex: str, where: str) -> Metric:
    """A metric definition. A UsageError begins with ``where``."""
    if not 0 < len(name) <= LONGEST_NAME:
        raise UsageError(f"{where}: expected a name of 1 to {LONGEST_NAME} characters before the =")
    if not 0 < len(regex) <= LONGEST_REGEX:
        raise UsageError(
            f"{where}: expected a regular expression of 1 to {LONGEST_REGEX} characters, got {len(regex)}; SageMaker "
            "takes no longer one"
        )
    try:
        pattern = re.compile(regex)
    except (re.error, OverflowError, RecursionError) as error:
        raise UsageError(f"{where}: {regex!r} is no regular expression: {error}") from None
    if not pattern.groups:
        raise UsageError(
            f"{where}: {regex!r} has no group; put parentheses around the number, such as '{name}=([0-9.]+)'"
        )
    return Metric(name, regex, pattern)


class MetricReader:
    """Searches the output of hosts, which comes in pieces. ``on_point`` gets each value, ``on_refused`` each match
    that isn't a number, ``on_slow`` a metric whose search of a line takes too long, with how many lines that were; it
    is given up with the :data:`MOST_SLOW`th. ``prefix``: what is taken off a line's beginning first.
    """

    def __init__(
        self,
        metrics: tuple[Metric, ...],
        on_point: Callable[[Point], None],
        on_refused: Callable[[Refused], None] = lambda _refused: None,
        prefix: str = "",
        on_slow: Callable[[Metric, int], None] = lambda _metric, _lines: None,
    ) -> None:
        self._prefix = re.compile(prefix)
        self._slow = dict.fromkeys(metrics, 0)
        self._on_point, self._on_refused, self._on_slow = on_point, on_refused, on_slow
        self._rests: dict[str, bytes] = {}

    def feed(self, host: str, data: bytes, at: float) -> None:
        """``host`` wrote ``data`` at ``at``, in seconds since the epoch."""
        parts = _LINE_END.split(self._rests.pop(host, b"") + data)
        rest = parts.pop()
        if len(rest) > LONGEST_LINE:
            parts.append(rest)
        elif rest:
            self._rests[host] = rest
        for part in parts:
            if part:
                self.search(host, part.decode("utf-8", "replace"), at)

    def end(self, host: str, at: float) -> None:
        """``host`` writes no more: its last line may have no end."""
        rest = self._rests.pop(host, b"")
        if rest:
            self.search(host, rest.decode("utf-8", "replace"), at)

    def search(self, host: str, line: str, at: float) -> None:
        """A whole line."""
        if found := self._prefix.match(line):
            line = line[found.end() :]
        for metric, slow in self._slow.items():
            if slow < MOST_SLOW:
                try:
                    texts = [match[1] or "" for match in metric.pattern.finditer(line)]
                except TimeoutError:
                    self._slow[metric] += 1
                    self._on_slow(metric, slow + 1)
                else:
                    self._tell(metric, host, texts, at)

    def _tell(self, metric: Metric, host: str, texts: list[str], at: float) -> None:
        for text in texts:
            try:
                value = float(text)
            except ValueError:
                value = math.nan
            if math.isfinite(value):
                self._on_point(Point(metric.name, host, at, value))
            else:
                self._on_refused(Refused(metric.name, text))
