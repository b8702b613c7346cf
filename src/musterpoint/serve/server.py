"""The server: one process that listens, answers and runs jobs until its end."""

from __future__ import annotations

import contextlib
import io
import math
import os
import select
import signal
import socket
import sys
import threading
import time
from typing import Any, Callable, Iterable, Iterator

from moto.moto_server.werkzeug_app import MotoRequestHandler
from werkzeug.serving import ThreadedWSGIServer
from werkzeug.wsgi import ClosingIterator

from musterpoint.base.errors import UsageError
from musterpoint.serve import running, validation
from musterpoint.serve.credentials import Credentials, new_pair
from musterpoint.serve.dispatch import Dispatcher
from musterpoint.serve.jobs import OF_AWS, Jobs
from musterpoint.serve.moto_services import MotoServices, Telemetry
from musterpoint.serve.operations import Context
from musterpoint.serve.page import Page
from musterpoint.serve.settings import Settings
from musterpoint.serve.state import State

MOST_CONNECTIONS = 256
"""At a time; for one more the slowest of those goes that are behind."""
LEAST_RATE = 1024
"""Bytes per second that a client moves while it is waited for, or it is behind."""
MOST_AHEAD = 10.0
"""Seconds that a client may be ahead by what it has sent or read."""
SILENCE = 60.0
"""Seconds behind after which a connection is closed."""
_UNSENT = 1 << 16
"""Bytes in the kernel that no client has taken yet. With more, slow readers look like dead ones."""
_CLIENT = "musterpoint.client"


class Client(io.RawIOBase):
    """A connection, and how far its client is ahead of :data:`LEAST_RATE`.

    ``expect`` is told when it is behind, before each wait for it; and None after that. It answers False where the
    connection has gone.
    """

    def __init__(self, connection: socket.socket, expect: Callable[[socket.socket, float | None], bool]) -> None:
        connection.setblocking(False)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, _UNSENT)
        self._connection, self._expect = connection, expect
        self._ahead = self._most = 0.0

    def may_be_ahead(self) -> None:
        """Counts bytes from now on."""
        self._ahead, self._most = 0.0, MOST_AHEAD

    def readable(self) -> bool:
        return True

    def writable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        return self._move(self._connection.recv_into, buffer, select.POLLIN)

    def write(self, data: Any) -> int:
        """Writes all of it."""
        rest = memoryview(data)
        while rest:
            rest = rest[self._move(self._connection.send, rest, select.POLLOUT) :]
        return len(data)

    def _move(self, move: Callable[[Any], int], data: Any, event: int) -> int:
        while True:
            try:
                count = move(data)
            except BlockingIOError:
                self._wait(event)
            else:
                self._ahead = min(self._ahead + count / LEAST_RATE, self._most)
                return count

    def _wait(self, event: int) -> None:
        begun = time.monotonic()
        self._expect(self._connection, begun + self._ahead)
        ready = select.poll()
        ready.register(self._connection, event)
        ready.poll()
        self._ahead -= time.monotonic() - begun
        if not self._expect(self._connection, None):
            raise ConnectionResetError("the client was too slow")


class RequestHandler(MotoRequestHandler):
    """Reads a connection, with names of headers as moto wants them; prints no line per request."""

    protocol_version = "HTTP/1.1"
    server: HttpServer
    wfile: Any

    def setup(self) -> None:
        self.connection = self.request
        self.client = Client(self.connection, self.server.expect)
        self.rfile, self.wfile = io.BufferedReader(self.client), self.client

    def parse_request(self) -> bool:
        if not super().parse_request():
            return False
        self.client.may_be_ahead()
        is_kept = self.server.expect(self.connection, None)
        self.close_connection |= not is_kept
        return is_kept

    def handle_expect_100(self) -> bool:
        """Leaves the answer to werkzeug."""
        return True

    def make_environ(self) -> dict[str, Any]:
        return {**super().make_environ(), _CLIENT: self.client}

    def log(self, type: str, message: str, *args: Any) -> None:
        pass


class HttpServer(ThreadedWSGIServer):
    """A thread per connection, up to a bound. ``say`` prints a line.

    A connection is safe while its request is worked on. While its client is waited for, to send or to read, it is safe
    only for as long as the client is ahead of :data:`LEAST_RATE`; the headers of a request don't count for that. When
    another needs its place, the one goes that has been behind for longest; so slow or silent ones shut nobody out.
    """

    daemon_threads = True  # a client that goes on sending holds no end of the server

    def __init__(self, settings: Settings, application: Any, listening: socket.socket, say: Callable[[str], None]):
        self._lock = threading.Lock()
        self._open: dict[socket.socket, float | None] = {}
        """As of when each is behind; None: it isn't waited for."""
        self._say = say
        self._said: dict[str, float] = {}
        self._application = application
        super().__init__(settings.host, settings.port, self._answer, handler=RequestHandler, fd=listening.detach())

    def _answer(self, environ: dict[str, Any], start: Any) -> Iterable[bytes]:
        """Answers a request. werkzeug then reads whatever the client goes on sending, perhaps for long."""
        parts = self._application(environ, start)
        return ClosingIterator(self._until_over(parts, environ), getattr(parts, "close", None))

    def _until_over(self, parts: Iterable[bytes], environ: dict[str, Any]) -> Iterator[bytes]:
        yield from parts
        yield b""  # without any part headers are sent only now
        environ[_CLIENT].may_be_ahead()
        self.expect(environ["werkzeug.socket"], time.monotonic())

    def expect(self, connection: socket.socket, behind: float | None) -> bool:
        """Notes when a connection's client is behind, by ``time.monotonic``; None: it isn't waited for.

        False: the connection has gone.
        """
        with self._lock:
            if connection not in self._open:
                return False
            self._open[connection] = behind
            return True

    def process_request(self, request: Any, client_address: Any) -> None:
        with self._lock:
            now = time.monotonic()
            if is_full := len(self._open) >= MOST_CONNECTIONS:
                behind = self._behind(now)
                if is_full := not behind:
                    self._say_once(f"connections are refused: {MOST_CONNECTIONS} are being answered")
                else:
                    self._end(behind[0])
            if not is_full:
                self._open[request] = now
        if is_full:
            self.shutdown_request(request)
        else:
            super().process_request(request, client_address)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            with self._lock:
                self._open.pop(request, None)

    def service_actions(self) -> None:
        """Ends the connections whose clients are too far behind; called twice a second."""
        with self._lock:
            for each in self._behind(time.monotonic() - SILENCE):
                self._end(each)

    def _behind(self, at: float) -> list[socket.socket]:
        """Connections that were behind then, the slowest first."""
        found = [(behind, each) for each, behind in self._open.items() if behind is not None and behind <= at]
        return [each for _, each in sorted(found, key=lambda row: row[0])]

    def _end(self, connection: socket.socket) -> None:
        """Has its thread read an end."""
        del self._open[connection]
        with contextlib.suppress(OSError):
            connection.shutdown(socket.SHUT_RDWR)
        self._say_once(
            f"connections are closed whose clients send or read less than {LEAST_RATE} bytes a second: after "
            f"{SILENCE:g} s, or the slowest while {MOST_CONNECTIONS} are open"
        )

    def _say_once(self, text: str) -> None:
        """Says it unless that was the case within the last minute, too."""
        now, before = time.monotonic(), self._said.get(text, -math.inf)
        self._said[text] = now
        if now - before > SILENCE:
            self._say(text)

    def log(self, type: str, message: str, *args: Any) -> None:
        if type == "error":
            self._say(message % args)


class End:
    """Hears SIGTERM and SIGINT from its making on; in the main thread."""

    def __init__(self) -> None:
        self._heard, self._told = os.pipe()
        os.set_blocking(self._told, False)
        # another thread may get the signal, which wakes no main thread that waits for a lock
        signal.set_wakeup_fd(self._told)
        for signo in (signal.SIGTERM, signal.SIGINT):
            signal.signal(signo, lambda number, frame: None)

    def wait(self) -> None:
        os.read(self._heard, 1)

    def with_stdin(self) -> None:
        """Counts the end of stdin, too."""
        threading.Thread(target=self._read_stdin, name="stdin", daemon=True).start()

    def _read_stdin(self) -> None:
        while os.read(0, 1024):
            pass
        os.write(self._told, b"\0")


class RunningServer:
    """A server that answers, from the constructor on until :meth:`close`; from the main thread."""

    def __init__(self, settings: Settings, say: Callable[[str], None]) -> None:
        self.held = running.take(settings.data)
        listening = _listen(settings)
        own = new_pair(controls=True)
        port = listening.getsockname()[1]
        self.settings = settings._replace(port=port, access_key=own.access_key, secret_key=own.secret_key)
        state, moto = State(say), MotoServices(self.settings)
        telemetry, credentials = Telemetry(settings.region, say), Credentials(own)
        self._jobs = Jobs(self.settings, state, telemetry, credentials, say)
        context = Context(self.settings, state, self._jobs, telemetry, moto, say)
        self._http = HttpServer(self.settings, Dispatcher(context, credentials, Page(context)), listening, say)
        self._jobs.start()
        for load in (moto.load_ahead, validation.service):
            threading.Thread(target=load, daemon=True).start()
        threading.Thread(target=self._http.serve_forever, name="http", daemon=True).start()

    def close(self) -> None:
        self._jobs.close()
        self._http.server_close()


def _listen(settings: Settings) -> socket.socket:
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((settings.host, settings.port))
        listening.listen(128)
    except OSError as error:
        listening.close()
        raise UsageError(
            f"--port={settings.port}: {settings.host} can't be listened on: {error.strerror}; --port 0 takes a free one"
        ) from None
    return listening


def main(settings: Settings, ready: Callable[[Settings, int], None]) -> int:
    """Runs a server. ``ready`` is called with its settings and its directory's descriptor once it answers."""

    def say(text: str) -> None:
        print(f"[muster serve] {text}", file=sys.stderr, flush=True)

    for name in [name for name in os.environ if name.startswith(OF_AWS)]:
        del os.environ[name]  # what is needed is in the settings; a profile that isn't there would break boto3
    end = End()
    if settings.end_with_stdin:
        end.with_stdin()
    server = RunningServer(settings, say)
    try:
        ready(server.settings, server.held)
        end.wait()
    finally:
        server.close()
    return 0
