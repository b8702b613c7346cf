"""The metrics of a local job: their points go to a file as they come, what is left of each is said at the end."""

from __future__ import annotations

import json
import os
import time
from typing import Any, Callable, Mapping, NamedTuple, TextIO

from musterpoint.base.errors import UsageError
from musterpoint.base.metrics import MOST_METRICS, MOST_SLOW, Metric, MetricReader, Point, Refused, read_metric
from musterpoint.base.untrusted import printable
from musterpoint.local.results import iso

FILE = "metrics.jsonl"
"""In the job's directory: an object for each point, with MetricName, Host, Timestamp (seconds) and Value."""
_OWN_PREFIX = r"\[rank \d+\] "
"""What ``muster local`` puts before lines where a host has several ranks; the platform puts nothing there."""
_SHOWN = 40


def read_metrics(texts: list[str]) -> tuple[Metric, ...]:
    """``NAME=REGEX`` texts as metric definitions. A UsageError names what is wrong."""
    found: dict[str, Metric] = {}
    for text in texts:
        name, equals, regex = text.partition("=")
        if not equals:
            raise UsageError(f"--metric={text!r}: expected NAME=REGEX, such as loss='loss=([0-9.]+)'")
        if name in found:
            raise UsageError(f"--metric={text!r}: {name} was given twice")
        found[name] = read_metric(name, regex, f"--metric={text!r}")
    if len(found) > MOST_METRICS:
        raise UsageError(f"--metric: expected at most {MOST_METRICS} metrics, as SageMaker takes, got {len(found)}")
    return tuple(found.values())


class Summary(NamedTuple):
    """What there is of a metric: how many values in ``total``, the ``last`` one, the smallest and the largest."""

    total: int
    last: Point
    low: float
    high: float

    def with_point(self, point: Point) -> Summary:
        return Summary(self.total + 1, point, min(self.low, point.value), max(self.high, point.value))


class MetricLog:
    """Takes the hosts' output and keeps the points of ``metrics`` in ``folder``'s :data:`FILE`.

    Without metrics it does nothing and writes no file. ``say`` is told once that the file can't be written, and of
    lines whose search takes too long, ``on_point`` of each value.
    """

    def __init__(
        self,
        metrics: tuple[Metric, ...],
        folder: str,
        say: Callable[[str], None] = lambda _text: None,
        on_point: Callable[[Point], None] = lambda _point: None,
    ) -> None:
        self._metrics = metrics
        self._reader = MetricReader(metrics, self._keep, self._refuse, _OWN_PREFIX, self._tell_slow)
        self._path = os.path.join(folder, FILE)
        self._file = _opened(self._path) if metrics else None
        self._say, self._on_point = say, on_point
        self._summaries: dict[str, Summary] = {}
        self._refused: dict[str, tuple[int, str]] = {}

    def feed(self, host: str, data: bytes) -> None:
        """``host`` wrote ``data`` now; no data: it writes no more."""
        if not self._metrics:
            return
        if data:
            self._reader.feed(host, data, time.time())
        else:
            self._reader.end(host, time.time())

    def _keep(self, point: Point) -> None:
        self._on_point(point)
        before = self._summaries.get(point.name)
        first = Summary(1, point, point.value, point.value)
        self._summaries[point.name] = before.with_point(point) if before else first
        row = {"MetricName": point.name, "Host": point.host, "Timestamp": round(point.at, 3), "Value": point.value}
        if self._file is not None:
            try:
                self._file.write(json.dumps(row) + "\n")
            except OSError as error:
                self._file = None
                self._say(f"warning: {self._path}: {error.strerror}; values are missing there")

    def _refuse(self, refused: Refused) -> None:
        count, _ = self._refused.get(refused.name, (0, ""))
        self._refused[refused.name] = (count + 1, refused.text)

    def _tell_slow(self, metric: Metric, lines: int) -> None:
        name, end = printable(metric.name, _SHOWN), "; it is given up" if lines == MOST_SLOW else ""
        self._say(f"warning: metric {name}: the search of a line for {metric.regex!r} takes too long{end}")

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def described(self) -> dict[str, Any]:
        """Fields of the job's description; ``FinalMetricDataList`` has the last value of each."""
        if not self._metrics:
            return {}
        lasts = [self._summaries[metric.name].last for metric in self._metrics if metric.name in self._summaries]
        return {
            "FinalMetricDataList": [
                {"MetricName": last.name, "Value": last.value, "Timestamp": iso(last.at)} for last in lasts
            ],
            "Metrics": "file://" + self._path,
        }

    def lines(self) -> list[str]:
        """A line for each metric, for people."""
        return [_line(metric, self._summaries, self._refused.get(metric.name)) for metric in self._metrics]


def _opened(path: str) -> TextIO:
    return open(path, "w", encoding="utf-8", buffering=1)


def _line(metric: Metric, summaries: Mapping[str, Summary], refused: tuple[int, str] | None) -> str:
    summary = summaries.get(metric.name)
    name = printable(metric.name, _SHOWN)
    bad = ""
    if refused is not None:
        times = "once" if refused[0] == 1 else f"{refused[0]} times"
        bad = f"{times} its group was no finite number, such as {printable(refused[1], _SHOWN)!r}"
    if summary is None:
        return f"warning: metric {name}: {bad or f'{metric.regex!r} matched no line of the hosts'}"
    said = f"the only value, of {summary.last.host}"
    if summary.total > 1:
        said = f"the last of {summary.total} values, {summary.low:g} to {summary.high:g}; of {summary.last.host}"
    return f"metric {name}: {summary.last.value:g} ({said})" + (f"; {bad}" if bad else "")
