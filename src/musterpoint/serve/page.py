"""The server's page for browsers: jobs, their logs and metrics as they come, their timelines, and two buttons.

Whoever has the token of this server may look: the address with it is printed at the start, and a cookie keeps it. Host
and Origin are checked, so that no other page of the browser can ask or press a button, whatever its name resolves to.
"""

from __future__ import annotations

import hmac
import http.cookies
import json
import urllib.parse
from importlib.resources import files
from typing import Any, Callable, Iterable, Mapping

from musterpoint.base.errors import UsageError
from musterpoint.serve.context import Context
from musterpoint.serve.errors import ApiError
from musterpoint.serve.job_keys import TRAINING
from musterpoint.serve.job_run import INTERRUPT
from musterpoint.serve.news import News
from musterpoint.serve.shown_jobs import newest_run, rows, stop, the
from musterpoint.serve.training_request import is_spot
from musterpoint.serve.transitions import OVER
from musterpoint.tools.viewer.history import read_history
from musterpoint.tools.viewer.lanes import lanes_of
from musterpoint.tools.viewer.page import own_file, to_html

BELOW = "/_muster/page/"
_LOCAL = ("127.0.0.1", "localhost", "[::1]")
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; frame-src 'self'; base-uri 'none'"
)
_PLAIN, _HTML, _JSON = "text/plain; charset=utf-8", "text/html; charset=utf-8", "application/json"
_TEXTS = {200: "OK", 303: "See Other", 400: "Bad Request", 403: "Forbidden", 404: "Not Found"}
Start = Callable[..., Any]


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
        if host not in self._hosts():
            raise Refusal(403, f"Host {host!r}: expected one of {', '.join(self._hosts())}")
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
        return [f"{name}:{settings.port}" for name in dict.fromkeys((*_LOCAL, own))]

    def _look(self, path: str, asked: Mapping[str, str], start: Start) -> Iterable[bytes]:
        what = path.removeprefix(BELOW)
        if path == "/":
            return _send(start, 200, _own("page.html"), _HTML, ("Content-Security-Policy", _POLICY))
        if what == "script.js":
            return _send(start, 200, own_file("curves.js").encode() + _own("page.js"), "text/javascript; charset=utf-8")
        if what == "style.css":
            return _send(start, 200, _own("page.css"), "text/css; charset=utf-8")
        if what == "jobs":
            return _send(start, 200, json.dumps(rows(self._context)).encode(), _JSON)
        if what == "news":
            head = [("Content-Type", "text/event-stream"), ("Cache-Control", "no-store")]
            start("200 OK", head)
            return News(self._context, asked.get("job", ""))
        if what == "report":
            history = read_history([newest_run(self._context, the(self._context, asked.get("job", "")))])
            return _send(start, 200, to_html(history, lanes_of(history)).encode(), _HTML)
        raise Refusal(404, f"{path}: there is nothing")

    def _press(self, what: str, job: str) -> None:
        context = self._context
        if what == "stop":
            stop(context, job)
            return
        record = context.state.find(TRAINING, job)
        if what != "interrupt" or record is None:
            raise Refusal(404, f"{what} {job}: there is nothing")
        if not is_spot(record.request) or record.status in OVER:
            raise Refusal(400, f"{job}: only a spot job (EnableManagedSpotTraining) that runs is interrupted")
        context.runner.order(job, {"order": INTERRUPT})


def _own(name: str) -> bytes:
    return files(__package__).joinpath(name).read_bytes()


def _send(start: Start, status: int, body: bytes, kind: str, *more: tuple[str, str]) -> Iterable[bytes]:
    fixed = [("X-Content-Type-Options", "nosniff"), ("Referrer-Policy", "no-referrer"), ("Cache-Control", "no-store")]
    start(f"{status} {_TEXTS[status]}", [("Content-Type", kind), ("Content-Length", str(len(body))), *fixed, *more])
    return [body]
