"""The server's page for browsers: jobs, logs, metrics, timelines, and two buttons.

Whoever has the token of this server may look: the address with it is printed at the start, and a cookie keeps it. Host
and Origin are checked, so that no other page of the browser can ask or press a button, whatever its name resolves to.
"""

from __future__ import annotations

import hmac
import http.cookies
import json
import os
import queue
import re
import urllib.parse
from importlib.resources import files
from itertools import groupby
from typing import Any, Iterable, Iterator, Mapping, Sequence

from musterpoint.base.errors import UsageError
from musterpoint.local.job_status import OVER
from musterpoint.serve.errors import ApiError
from musterpoint.serve.moto_services import Line, Start
from musterpoint.serve.operations import Context, Request, training_jobs
from musterpoint.serve.state import INTERRUPT, Record
from musterpoint.serve.training_request import hosts, is_spot
from musterpoint.tools.viewer.history import FILE, TIMELINE, read_curves, read_history
from musterpoint.tools.viewer.page import own_file, to_html

BELOW = "/_muster/page/"
MOST_JOBS = 200
"""In the list."""
_BEAT = 15.0
"""Seconds between two words to a listener for whom there is nothing new."""
_MOST_WAITING = 10_000
"""Changes and pieces of logs that a slow listener may be behind."""
_LOCAL = ("127.0.0.1", "localhost", "[::1]")
_PORT = re.compile(r":\d+\Z")
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; frame-src 'self'; base-uri 'none'"
)
_PLAIN, _HTML, _JSON = "text/plain; charset=utf-8", "text/html; charset=utf-8", "application/json"
_TEXTS = {200: "OK", 303: "See Other", 400: "Bad Request", 403: "Forbidden", 404: "Not Found"}


class Refusal(Exception):
    """``status``: of HTTP."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


class Page:
    """The WSGI application. A call has been found to be none of AWS's."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._token = context.settings.token
        self._cookie = f"muster-{context.settings.port}"

    def __call__(self, environ: Mapping[str, Any], start: Start) -> Iterable[bytes]:
        try:
            return self._answer(environ, start)
        except Refusal as refusal:
            return _send(start, refusal.status, str(refusal).encode(), _PLAIN)
        except (ApiError, UsageError) as error:
            return _send(start, 400, str(getattr(error, "message", error)).encode(), _PLAIN)

    def _answer(self, environ: Mapping[str, Any], start: Start) -> Iterable[bytes]:
        host = environ.get("HTTP_HOST", "")
        if _PORT.sub("", host) not in self._hosts():  # whatever port leads here: a container's may be published
            raise Refusal(403, f"Host {host!r}: expected one of {', '.join(self._hosts())}, with any port")
        path, asked = environ.get("PATH_INFO", "/"), dict(urllib.parse.parse_qsl(environ.get("QUERY_STRING", "")))
        if path == "/" and hmac.compare_digest(asked.get("token", "").encode(), self._token.encode()):
            cookie = f"{self._cookie}={self._token}; Path=/; HttpOnly; SameSite=Strict"
            return _send(start, 303, b"", _PLAIN, ("Location", "/"), ("Set-Cookie", cookie))
        cookies = http.cookies.SimpleCookie(environ.get("HTTP_COOKIE", ""))
        given = cookies[self._cookie].value if self._cookie in cookies else ""
        if not hmac.compare_digest(given.encode(), self._token.encode()):
            raise Refusal(403, "open the address that muster serve printed at its start: it has the page's token")
        if environ["REQUEST_METHOD"] == "POST":
            if environ.get("HTTP_ORIGIN") != f"http://{host}":
                raise Refusal(403, f"Origin {environ.get('HTTP_ORIGIN')!r}: expected http://{host}")
            self._press(path.removeprefix(BELOW), asked.get("job", ""))
            return _send(start, 200, b"{}", _JSON)
        return self._look(path, asked, start)

    def _hosts(self) -> list[str]:
        settings = self._context.settings
        own = f"[{settings.host}]" if ":" in settings.host else settings.host
        return list(dict.fromkeys((*_LOCAL, own)))

    def _look(self, path: str, asked: Mapping[str, str], start: Start) -> Iterable[bytes]:
        what = path.removeprefix(BELOW)
        if path == "/":
            return _send(start, 200, _own("page.html"), _HTML, ("Content-Security-Policy", _POLICY))
        if what == "script.js":
            return _send(start, 200, own_file("curves.js").encode() + _own("page.js"), "text/javascript; charset=utf-8")
        if what == "style.css":
            return _send(start, 200, _own("page.css"), "text/css; charset=utf-8")
        if what == "jobs":
            return _send(start, 200, json.dumps(_rows(self._context)).encode(), _JSON)
        if what == "news":
            head = [("Content-Type", "text/event-stream"), ("Cache-Control", "no-store")]
            start("200 OK", head)
            return News(self._context, asked.get("job", ""))
        if what == "report":
            history = read_history(
                [_newest_run(self._context, training_jobs.job_called(self._context, asked.get("job", "")))]
            )
            return _send(start, 200, to_html(history, within=True).encode(), _HTML)
        raise Refusal(404, f"{path}: there is nothing")

    def _press(self, what: str, job: str) -> None:
        context = self._context
        if what == "stop":
            training_jobs.stop(Request("StopTrainingJob", {"TrainingJobName": job}, context))
            return
        record = context.state.find(job)
        if what != "interrupt" or record is None:
            raise Refusal(404, f"{what} {job}: there is nothing")
        if not is_spot(record.request) or record.status in OVER:
            raise Refusal(400, f"{job}: only a spot job (EnableManagedSpotTraining) that runs is interrupted")
        context.jobs.order(job, {"order": INTERRUPT})


class News:
    """The news of the page, as server-sent events: statuses, lines of logs, values of metrics.

    ``job``: the name of the one whose details it wants, or empty.
    """

    def __init__(self, context: Context, job: str) -> None:
        self._context, self._job = context, job
        self._waiting: queue.Queue[Record | Sequence[Line]] = queue.Queue(_MOST_WAITING)
        self._left_out = False
        self._measured: tuple[str, int] = ("", 0)
        self._forget_state = context.state.listen(self._put)
        self._recent, self._forget_lines = context.telemetry.listen(self._wrote, job)

    def _wrote(self, name: str, lines: Sequence[Line]) -> None:
        if name == self._job:
            self._put(lines)

    def _put(self, what: Record | Sequence[Line]) -> None:
        try:
            self._waiting.put_nowait(what)
        except queue.Full:
            self._left_out = True

    def __iter__(self) -> Iterator[bytes]:
        try:
            yield _event("jobs", _rows(self._context))
            yield from self._lines(self._recent)
            yield from self._details()
            while True:
                yield from self._next()
        finally:
            self.close()

    def close(self) -> None:
        """Of WSGI: nobody listens any more."""
        self._forget_state()
        self._forget_lines()

    def _next(self) -> Iterator[bytes]:
        try:
            what = self._waiting.get(timeout=_BEAT)
        except queue.Empty:
            yield b": still here\n\n"  # finds out whether anyone listens
            return
        if self._left_out and self._waiting.empty():
            self._left_out = False
            yield _event("log", {"host": "", "text": "muster serve: lines are left out here; the host's log has all\n"})
        if not isinstance(what, Record):
            yield from self._lines(what) if what else self._details(curves_only=True)
        else:
            yield _event("jobs", [_row(what) if what.status else {"name": what.name, "status": ""}])
            if what.name == self._job:
                yield from self._details()

    def _lines(self, lines: Sequence[Line]) -> Iterator[bytes]:
        for host, own in groupby(lines, lambda line: line.host):
            yield _event("log", {"host": host, "text": "".join(f"{line.text}\n" for line in own)})

    def _curves(self, record: Record, run: str) -> Iterator[bytes]:
        try:
            size = os.path.getsize(os.path.join(run, FILE))
        except OSError:
            return
        if self._measured != (run, size):
            self._measured = run, size
            yield _event("curves", read_curves(run, record.created))

    def _details(self, curves_only: bool = False) -> Iterator[bytes]:
        record = self._context.state.find(self._job)
        if record is None:
            return
        run = _newest_run(self._context, record)
        yield from self._curves(record, run)
        if curves_only:
            return
        report = {"report": os.path.exists(os.path.join(run, TIMELINE))}
        yield _event("job", {**_row(record), **_details(record), **report})


def _row(record: Record) -> dict[str, Any]:
    """A job in the list."""
    count = len(hosts(record.request))
    return {
        "name": record.name,
        "status": record.status,
        "secondary": record.facts.get("SecondaryStatus", ""),
        "created": record.created,
        "size": f"{count} host{'' if count == 1 else 's'}",
    }


def _rows(context: Context) -> list[dict[str, Any]]:
    """The newest jobs, newest first."""
    return [_row(record) for record in reversed(context.state.select()[-MOST_JOBS:])]


def _details(record: Record) -> dict[str, Any]:
    """The facts of one job beside its row."""
    resources = record.request.get("ResourceConfig") or {}
    model = (record.facts.get("ModelArtifacts") or {}).get("S3ModelArtifacts", "")
    about = (
        f"{len(hosts(record.request))} × {resources.get('InstanceType') or 'instance groups'}",
        record.request.get("AlgorithmSpecification", {}).get("TrainingImage", ""),
        f"model: {model}" if model else "",
    )
    return {
        "about": " · ".join(filter(None, about)),
        "reason": record.facts.get("FailureReason", ""),
        "transitions": list(record.facts.get("SecondaryStatusTransitions", ())),
        "stoppable": record.ended is None and record.status != "Stopping",
        "spot": is_spot(record.request),
    }


def _newest_run(context: Context, record: Record) -> str:
    """The directory of the job's newest run; without one, the job's own."""
    folder = context.settings.job_directory(record.name)
    try:
        numbers = [int(name[4:]) for name in os.listdir(folder) if name.startswith("run-") and name[4:].isdigit()]
    except FileNotFoundError:
        numbers = []
    return os.path.join(folder, f"run-{max(numbers)}") if numbers else folder


def _event(kind: str, value: Any) -> bytes:
    return f"event: {kind}\ndata: {json.dumps(value)}\n\n".encode()


def _own(name: str) -> bytes:
    return files(__package__).joinpath(name).read_bytes()


def _send(start: Start, status: int, body: bytes, kind: str, *more: tuple[str, str]) -> Iterable[bytes]:
    fixed = [("X-Content-Type-Options", "nosniff"), ("Referrer-Policy", "no-referrer"), ("Cache-Control", "no-store")]
    start(f"{status} {_TEXTS[status]}", [("Content-Type", kind), ("Content-Length", str(len(body))), *fixed, *more])
    return [body]
