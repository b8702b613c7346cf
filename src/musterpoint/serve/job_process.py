"""The ways of a job's process: to the server with output, to S3 with files."""

from __future__ import annotations

import http.client
import json
import os
import re
import shutil
import socket
import threading
import time
import urllib.error
import urllib.request
from typing import Any, Callable, Mapping, NamedTuple

from musterpoint.base.below import Below, Tree, below, notes_of
from musterpoint.base.errors import FetchError
from musterpoint.base.metrics import Point
from musterpoint.core.data import moves
from musterpoint.core.data.mover_process import Access, NotMoved, Say, run_here
from musterpoint.core.data.places import ALONE, Channel, Share
from musterpoint.serve.settings import Settings

LARGEST_WHOLE = 16 << 20
"""Bytes of a file that is sent in one request, which the server holds in memory; larger ones go in parts."""
LONGEST_PUT = 60.0
"""Seconds in which the server answers such a request."""
_PROXIES = ("http_proxy", "https_proxy", "all_proxy")


class TransferError(Exception):
    """S3 refused it; the text says what and why."""


class Transfers:
    """One job's transfers. ``given_up`` is asked while they run: an exception from it ends them.

    ``uploads``: presigned URLs, by the URIs of their objects.
    """

    def __init__(
        self, settings: Settings, given_up: Callable[[], None], uploads: Mapping[str, str] | None = None
    ) -> None:
        self._given_up, self._uploads = given_up, uploads or {}
        self.access = access_of(settings)

    def bring(self, channel: Channel, folder: str, share: Share = ALONE) -> None:
        """Brings the files of a channel to ``folder``.

        Raises:
            TransferError: they can't be brought; so for every method.
        """
        self._do(lambda: moves.bring(channel, folder, self.access, share, run=self._run))
        shutil.rmtree(notes_of(folder), ignore_errors=True)  # beside channels a program finds channels only

    def bring_if_any(self, channel: Channel, folder: str) -> None:
        """The same; that there is nothing yet is no error."""

        def ask() -> None:
            try:
                moves.bring(channel, folder, self.access, run=self._run)
            except NotMoved as error:
                if not error.missing:
                    raise

        self._do(ask)

    def upload(self, path: str, uri: str) -> None:
        """Sends a file to the place ``uri``, below which it keeps its name.

        A small one goes from here, by its presigned URL. Where that fails the program sends it, which knows why.
        """
        self._given_up()
        url = self._uploads.get(f"{uri}/{os.path.basename(path)}", "")
        if not url or not _is_put(path, url):
            self._do(lambda: moves.send_file(path, uri, self.access, run=self._run))

    def upload_tree(self, place: str, name: str, uri: str) -> None:
        """Sends every file below the folder ``name`` of a job's tree. A link in its place isn't followed: it leads to
        this machine's files, not to the job's.
        """
        folder = below(os.path.realpath(place), name)
        if not Below(place).is_folder(name):
            print(f"{name} below /opt/ml isn't sent to {uri}: the job has no folder there any more", flush=True)
        elif moves.has_files(folder):
            self._do(lambda: moves.send(folder, uri, self.access, run=self._run))

    def _run(self, argv: tuple[str, ...], environ: Mapping[str, str], on_line: Say) -> int:
        def hear(line: str) -> None:
            self._given_up()
            on_line(line)

        return run_here(argv, environ, hear)

    def _do(self, action: Callable[[], object]) -> None:
        self._given_up()
        try:
            action()
        except FetchError as error:
            raise TransferError(str(error)) from None


def _is_put(path: str, url: str) -> bool:
    """Tells whether the file ``path`` is a small one, and the server has taken it."""
    folder, name = os.path.split(os.path.realpath(path))
    try:
        with Tree(folder).file(name) as file:
            data = file.read(LARGEST_WHOLE + 1)
        if len(data) > LARGEST_WHOLE:
            return False
        request = urllib.request.Request(url, data, {"Content-Type": "binary/octet-stream"}, method="PUT")
        with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=LONGEST_PUT):
            return True
    except urllib.error.HTTPError as error:
        error.close()
    except (OSError, http.client.HTTPException) as error:
        print(f"{url.partition('?')[0]} can't be reached: {error}; it is tried again", flush=True)
    return False


def access_of(settings: Settings) -> Access:
    """The access of a job to the server's S3: on this machine, so through no proxy."""
    own = {name: value for name, value in os.environ.items() if name.lower() not in _PROXIES}
    return Access({**own, **settings.variables}, region=settings.region, endpoint=url_of(settings))


def url_of(settings: Settings) -> str:
    """The server's URL with its address. S3's clients put a bucket's name before a host's."""
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    try:
        found = socket.getaddrinfo(settings.host or "127.0.0.1", settings.port, family, socket.SOCK_STREAM)
    except OSError:
        return settings.url
    return settings._replace(host=str(found[0][4][0])).url


SERVER_ENDED = "muster serve was ended while the job ran"
MOST_WAITING = 100_000
"""Lines that wait for the server at most. More are left out of the log streams, and counted there."""
MOST_BYTES = 64 << 20
"""Of these lines' texts, likewise."""
_LONGEST_LINE = 1 << 18
_LINE_END = re.compile(rb"\r?\n|\r")


class Job(NamedTuple):
    """The job as the server tells it."""

    name: str
    arn: str
    created: float
    request: Mapping[str, Any]
    status: str
    uploads: Mapping[str, str] = {}
    """Presigned URLs of the archives that it may leave, by their URIs."""


class Link:
    """The socket to the server; from any thread."""

    def __init__(self, link: socket.socket) -> None:
        self._link = link
        self._lock = threading.Lock()

    def send(self, **said: Any) -> None:
        with self._lock:
            self._link.sendall((json.dumps(said) + "\n").encode())


class Output:
    """The output of one run's hosts on its way to the server. A thread sends it, so that no host waits."""

    def __init__(self, link: Link) -> None:
        self._link, self._run = link, int(time.time())
        self._rests: dict[str, bytes] = {}
        self._lines: list[tuple[str, int, str]] = []
        self._points: list[Point] = []
        self._left_out = self._size = 0
        self._news = threading.Condition()
        self._closing = False
        self._thread = threading.Thread(target=self._send_all, name="output", daemon=True)
        self._thread.start()

    def wrote(self, host: str, data: bytes) -> None:
        """``host`` wrote ``data`` now; no data: it writes no more."""
        now = int(time.time() * 1000)
        parts = _LINE_END.split(self._rests.pop(host, b"") + data)
        rest = parts.pop()
        if not data or len(rest) > _LONGEST_LINE:
            parts += [rest] if rest else []
        elif rest:
            self._rests[host] = rest
        lines = [(host, now, part.decode("utf-8", "replace")) for part in parts if part.strip()]
        with self._news:
            for line in lines:
                if len(self._lines) < MOST_WAITING and self._size + len(line[2]) <= MOST_BYTES:
                    self._lines.append(line)
                    self._size += len(line[2])
                else:
                    self._left_out += 1
            self._news.notify()

    def measured(self, point: Point) -> None:
        with self._news:
            self._points.append(point)
            self._news.notify()

    def close(self) -> None:
        """Returns when everything has been sent."""
        with self._news:
            self._closing = True
            self._news.notify()
        self._thread.join()

    def _send_all(self) -> None:
        while True:
            with self._news:
                self._news.wait_for(lambda: self._lines or self._points or self._closing)
                lines, self._lines, points, self._points = self._lines, [], self._points, []
                left_out, self._left_out, self._size = self._left_out, 0, 0
            if not lines and not points:
                return
            if left_out:
                lines.append((lines[-1][0], lines[-1][1], f"muster serve: {left_out:,} lines are left out here"))
            if lines:
                self._link.send(run=self._run, lines=lines)
            if points:
                self._link.send(points=points)
