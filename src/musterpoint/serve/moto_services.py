"""moto's services inside of this process: S3, IAM and all others that aren't ours."""

from __future__ import annotations

import io
import threading
import urllib.parse
from collections import deque
from datetime import datetime, timezone
from typing import Any, Callable, Iterable, NamedTuple, Sequence
from xml.sax.saxutils import escape

from moto.cloudwatch.models import cloudwatch_backends
from moto.logs.models import logs_backends
from moto.moto_api._internal.models import moto_api_backend
from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from werkzeug.test import Client
from werkzeug.wrappers import Response

from musterpoint.base.metrics import Point
from musterpoint.serve.settings import ACCOUNT, Settings
from musterpoint.serve.state import Listeners

Start = Callable[..., Any]
Wsgi = Callable[[dict[str, Any], Start], Iterable[bytes]]
_SIMULATE = "SimulatePrincipalPolicy"
_ALLOWED = (
    "<member><EvalActionName>{}</EvalActionName><EvalResourceName>*</EvalResourceName>"
    "<EvalDecision>allowed</EvalDecision></member>"
)
_LOADED_AHEAD = ("s3", "logs", "sts", "iam", "monitoring")
"""Services that nearly every client asks; loading takes half a second."""


class MotoServices:
    """The WSGI application of all of them."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._dispatcher = DomainDispatcherApplication(create_backend_app)

    def __call__(self, environ: dict[str, Any], start: Start) -> Iterable[bytes]:
        found: Wsgi = self._dispatcher.get_application(environ)
        return found(environ, start)

    def call(self, service: str, method: str, path: str, body: bytes = b"", **headers: str) -> Response:
        """The answer of ``service`` to our own request. Names of headers have ``_`` for ``-``."""
        signed = f"AWS4-HMAC-SHA256 Credential=muster/20260101/{self._settings.region}/{service}/aws4_request, "
        given = {name.replace("_", "-"): value for name, value in headers.items()}
        return Client(self, Response).open(
            path,
            method=method,
            data=body,
            base_url=self._settings.url,
            headers={"Authorization": f"{signed}SignedHeaders=host, Signature=0", **given},
        )

    def load_ahead(self) -> None:
        for service in _LOADED_AHEAD:
            self.call(service, "GET", "/")

    def reset(self) -> None:
        """Has all services forget everything, as POST /moto-api/reset."""
        moto_api_backend.reset()


def body_of(environ: dict[str, Any]) -> bytes:
    """The body of the request, which can still be read by others."""
    stream = environ["wsgi.input"]
    if environ.get("wsgi.input_terminated") and not environ.get("CONTENT_LENGTH"):
        body: bytes = stream.read()
    else:
        body = stream.read(int(environ.get("CONTENT_LENGTH") or 0))
    environ["wsgi.input"] = io.BytesIO(body)
    environ["wsgi.input_terminated"] = True  # else werkzeug reads it into another copy
    return body


def simulated(body: bytes) -> bytes | None:
    """The answer to IAM's SimulatePrincipalPolicy: all is allowed. SDK v3 asks it before a job, and moto lacks it.

    None: the ``body`` asks something else.
    """
    fields = urllib.parse.parse_qs(body.decode("utf-8", "replace"))
    if fields.get("Action") != [_SIMULATE]:
        return None
    actions = [value for name, values in fields.items() if name.startswith("ActionNames.member.") for value in values]
    results = "".join(_ALLOWED.format(escape(action)) for action in actions)
    return (
        f'<{_SIMULATE}Response xmlns="https://iam.amazonaws.com/doc/2010-05-08/"><{_SIMULATE}Result>'
        f"<IsTruncated>false</IsTruncated><EvaluationResults>{results}</EvaluationResults></{_SIMULATE}Result>"
        f"<ResponseMetadata><RequestId>muster</RequestId></ResponseMetadata></{_SIMULATE}Response>"
    ).encode()


GROUP = "/aws/sagemaker/TrainingJobs"
"""The log group of all jobs, and the namespace of their metrics."""
MOST_LINES, MOST_POINTS = 200_000, 100_000
"""In memory, of all jobs; the oldest go first, and their streams stay."""
MOST_BYTES = 256 << 20
"""Of all these lines' texts, likewise."""
LONGEST_SHOWN = 1 << 14
"""Characters of a line that is kept for those who begin to look."""
RECENT = 2000
"""Lines of a job that somebody gets who begins to look at it."""
LONGEST = (1 << 18) - 26
"""Bytes of an event's text: CloudWatch's own limit."""


class Line(NamedTuple):
    """A line that ``host`` wrote ``at`` (milliseconds since the epoch)."""

    host: str
    at: int
    text: str


Heard = Callable[[str, Sequence[Line]], None]


class Telemetry:
    """The output of all jobs, by their names. Listeners are called with each job's new lines, and with none
    where it has new values of metrics; they must not wait.
    """

    def __init__(self, region: str, say: Callable[[str], None]) -> None:
        self._region = region
        self._lock = threading.Lock()
        self._recent: dict[str, deque[Line]] = {}
        self._kept: deque[tuple[str, int, int]] = deque()
        self._count = self._bytes = 0
        self._listeners = Listeners(say)

    def listen(self, heard: Heard, name: str = "") -> tuple[list[Line], Callable[[], None]]:
        """The last lines of the job ``name``, and a call that ends the listening. Each later line is heard once."""
        with self._lock:
            return list(self._recent.get(name, ())), self._listeners.add(heard)

    def lines(self, name: str, run: int, lines: Sequence[Line]) -> None:
        """Keeps lines of a job's run that began at ``run`` (seconds since the epoch)."""
        with self._lock:
            short = [line._replace(text=line.text[:LONGEST_SHOWN]) for line in lines]
            self._recent.setdefault(name, deque(maxlen=RECENT)).extend(short)
            for host in dict.fromkeys(line.host for line in lines):
                own = [{"timestamp": line.at, "message": _cut(line.text)} for line in lines if line.host == host]
                size = sum(len(line.text) for line in lines if line.host == host)
                self._put(f"{name}/{host}-{run}", own, size)
            self._listeners.tell(name, lines)

    def _put(self, stream: str, events: list[dict[str, object]], size: int) -> None:
        backend = logs_backends[ACCOUNT][self._region]
        if GROUP not in backend.groups:
            backend.create_log_group(GROUP, {})
        backend.ensure_log_stream(GROUP, stream)
        backend.groups[GROUP].put_log_events(stream, events)
        self._kept.append((stream, len(events), size))
        self._count, self._bytes = self._count + len(events), self._bytes + size
        while self._count > MOST_LINES or self._bytes > MOST_BYTES:
            stream, count, size = self._kept.popleft()
            self._count, self._bytes = self._count - count, self._bytes - size
            if GROUP in backend.groups and stream in backend.groups[GROUP].streams:
                del backend.groups[GROUP].streams[stream].events[:count]

    def points(self, name: str, points: Iterable[Point]) -> None:
        """Keeps values of the metrics of the training job ``name``."""
        backend = cloudwatch_backends[ACCOUNT][self._region]
        dimensions = [{"Name": "TrainingJobName", "Value": name}]
        with self._lock:
            backend.put_metric_data(
                GROUP,
                [
                    {
                        "MetricName": point.name,
                        "Dimensions": dimensions,
                        "Timestamp": datetime.fromtimestamp(point.at, timezone.utc).replace(tzinfo=None),  # as moto's
                        "Value": point.value,
                    }
                    for point in points
                ],
            )
            del backend.metric_data[:-MOST_POINTS]
            self._listeners.tell(name, ())

    def forget(self, name: str) -> None:
        with self._lock:
            self._recent.pop(name, None)

    def clear(self) -> None:
        """Forgets what isn't moto's."""
        with self._lock:
            self._recent.clear()
            self._kept.clear()
            self._count = self._bytes = 0


def _cut(text: str) -> str:
    data = text.encode("utf-8", "replace")
    return text if len(data) <= LONGEST else data[:LONGEST].decode("utf-8", "ignore")
