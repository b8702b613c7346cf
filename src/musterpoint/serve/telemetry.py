"""What a job's hosts print, as CloudWatch has it: a log stream for each host, and the job's metrics.

The names are SageMaker's: streams ``JOB/HOST-SECONDS`` of a group for the kind of job, and metrics with the dimension
TrainingJobName. A thread sends what has come meanwhile, so that a host never waits for CloudWatch. While the server is
away it waits; what can't be sent then is said in the job's own log, and the job goes on.
"""

from __future__ import annotations

import re
import threading
import time
from collections import defaultdict
from datetime import datetime
from typing import Any, Callable, Iterable, Iterator, Mapping, Sequence

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from musterpoint.base.metrics import Point
from musterpoint.serve.settings import Settings
from musterpoint.serve.transfers import LONGEST_ABSENCE

NAMESPACE = "/aws/sagemaker/TrainingJobs"
"""Of training jobs' metrics, and the name of their log group."""
_MOST_EVENTS, _MOST_BYTES, _EVENT = 10_000, 1 << 20, 26
"""Of one PutLogEvents: events, bytes, and the bytes that count for an event beside its text."""
_LONGEST = (1 << 18) - _EVENT
_MOST_POINTS = 1000
_LINE_END = re.compile(rb"\r?\n|\r")


class Telemetry:
    """The output of one run of a job. ``group``: its log group. ``sent`` is called with the points of metrics that have
    been sent, possibly none, when they and the lines before them can be read.
    """

    def __init__(
        self, settings: Settings, group: str, job: str, sent: Callable[[Sequence[Point]], None] = lambda points: None
    ) -> None:
        self._settings, self._group, self._job, self._sent = settings, group, job, sent
        self._suffix = int(time.time())
        self._rests: dict[str, bytes] = {}
        self._lines: list[tuple[str, int, str]] = []
        self._points: list[Point] = []
        self._streams: set[str] = set()
        self._news = threading.Condition()
        self._back = threading.Event()
        self._closing = self._given_up = False
        self._thread: threading.Thread | None = None

    def wrote(self, host: str, data: bytes) -> None:
        """``host`` wrote ``data`` now; no data: it writes no more. From any thread."""
        now = int(time.time() * 1000)
        parts = _LINE_END.split(self._rests.pop(host, b"") + data)
        rest = parts.pop()
        if not data or len(rest) > _LONGEST:
            parts += [rest] if rest else []
        elif rest:
            self._rests[host] = rest
        lines = [(host, now, part.decode("utf-8", "replace")) for part in parts if part.strip()]
        if lines:
            self._tell(lambda: self._lines.extend(lines))

    def measured(self, point: Point) -> None:
        """A value of a metric was found. From any thread."""
        self._tell(lambda: self._points.append(point))

    def _tell(self, add: Callable[[], None]) -> None:
        with self._news:
            add()
            if self._thread is None:
                self._thread = threading.Thread(target=self._send_all, name="telemetry", daemon=True)
                self._thread.start()
            self._news.notify()

    def close(self) -> None:
        """Returns when everything has been sent."""
        with self._news:
            self._closing = True
            self._news.notify()
        if self._thread is not None:
            self._thread.join()

    def give_up(self) -> None:
        """The server is about to end: nothing is waited for any more."""
        self._given_up = True
        self._back.set()

    def server_is_back(self, settings: Settings) -> None:
        """A server has been started anew."""
        self._settings = settings
        self._streams.clear()
        self._back.set()

    def _send_all(self) -> None:
        while True:
            with self._news:
                self._news.wait_for(lambda: self._lines or self._points or self._closing)
                lines, self._lines = self._lines, []
                points, self._points = self._points, []
                if not lines and not points:
                    return
            by_host: dict[str, list[tuple[int, str]]] = defaultdict(list)
            for host, at, text in lines:
                by_host[host].append((at, text))
            for host, events in by_host.items():
                for batch in batches(events):
                    self._patiently(lambda host=host, batch=batch: self._put_events(host, batch))  # type: ignore[misc]
            for start in range(0, len(points), _MOST_POINTS):
                part = points[start : start + _MOST_POINTS]
                self._patiently(lambda part=part: self._put_points(part))  # type: ignore[misc]
            self._sent(points)

    def _put_events(self, host: str, events: list[tuple[int, str]]) -> None:
        logs = client(self._settings, "logs")
        stream = f"{self._job}/{host}-{self._suffix}"
        if host not in self._streams:
            _unless_there(logs.create_log_group, logGroupName=self._group)
            _unless_there(logs.create_log_stream, logGroupName=self._group, logStreamName=stream)
            self._streams.add(host)
        logs.put_log_events(
            logGroupName=self._group,
            logStreamName=stream,
            logEvents=[{"timestamp": at, "message": text} for at, text in events],
        )

    def _put_points(self, points: Iterable[Point]) -> None:
        dimensions = [{"Name": "TrainingJobName", "Value": self._job}]
        client(self._settings, "cloudwatch").put_metric_data(
            Namespace=NAMESPACE,
            MetricData=[
                {"MetricName": point.name, "Dimensions": dimensions, "Timestamp": point.at, "Value": point.value}
                for point in points
            ],
        )

    def _patiently(self, action: Callable[[], None]) -> None:
        while not self._given_up:
            self._back.clear()
            try:
                action()
                return
            except ClientError as error:
                print(f"{self._job}: CloudWatch refused output: {error}", flush=True)
                return
            except BotoCoreError:  # nobody answers: a new server will say that it is there
                if not self._given_up and not self._back.wait(LONGEST_ABSENCE):
                    self._given_up = True


def batches(events: Iterable[tuple[int, str]]) -> Iterator[list[tuple[int, str]]]:
    """``events`` in groups that one PutLogEvents takes; texts that are too long are cut."""
    batch: list[tuple[int, str]] = []
    size = 0
    for at, text in events:
        data = text.encode()
        if len(data) > _LONGEST:
            text = data[:_LONGEST].decode("utf-8", "ignore")
            data = text.encode()
        if batch and (len(batch) == _MOST_EVENTS or size + len(data) + _EVENT > _MOST_BYTES):
            yield batch
            batch, size = [], 0
        batch.append((at, text))
        size += len(data) + _EVENT
    if batch:
        yield batch


def final_metrics(description: Mapping[str, Any]) -> list[dict[str, Any]]:
    """``FinalMetricDataList`` of a local job's description, with times as seconds since the epoch."""
    return [
        {**each, "Timestamp": datetime.fromisoformat(each["Timestamp"]).timestamp()}
        for each in description.get("FinalMetricDataList", ())
    ]


def client(settings: Settings, service: str) -> Any:
    """A client of the server's own account; one for each server and service."""
    key = (settings.url, settings.access_key, service)
    if key not in _CLIENTS:
        _CLIENTS[key] = boto3.client(
            service,
            endpoint_url=settings.url,
            region_name=settings.region,
            aws_access_key_id=settings.access_key,
            aws_secret_access_key=settings.secret_key,
            config=Config(retries={"total_max_attempts": 1}, proxies={}),
        )
    return _CLIENTS[key]


_CLIENTS: dict[tuple[str, str, str], Any] = {}


def load_ahead(settings: Settings) -> None:
    """Loads what each job needs, before it is forked."""
    for service in ("logs", "cloudwatch"):
        client(settings, service)


def _unless_there(create: Callable[..., Any], **words: str) -> None:
    try:
        create(**words)
    except ClientError as error:
        if error.response["Error"]["Code"] != "ResourceAlreadyExistsException":
            raise
