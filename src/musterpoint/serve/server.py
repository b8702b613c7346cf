"""The server: one process that listens, answers and has jobs run, until it is told to end."""

from __future__ import annotations

import contextlib
import os
import queue
import signal
import socket
import sys
import threading
import traceback
from typing import Any, Callable

from moto.moto_server.werkzeug_app import MotoRequestHandler
from werkzeug.serving import ThreadedWSGIServer

from musterpoint.base.errors import UsageError
from musterpoint.serve import running, validation
from musterpoint.serve.credentials import Credentials, new_pair
from musterpoint.serve.dispatch import Dispatcher
from musterpoint.serve.jobs import OF_AWS, Jobs
from musterpoint.serve.moto_services import MotoServices, Telemetry
from musterpoint.serve.operations import Context, executions, tuning_jobs
from musterpoint.serve.page import Page
from musterpoint.serve.settings import Settings
from musterpoint.serve.state import Record, State

MOST_CONNECTIONS = 256
"""At a time; one more is closed at once."""
MOST_WAITING = 100_000
"""Ends of jobs that wait to be followed; what is more is left out, with a word."""
LONGEST_SEQUEL = 10.0
"""Seconds that what follows a job gets to end with the server."""
FIRST_SILENCE = 10.0
"""Seconds that a new connection gets to ask: so long do many that say nothing shut others out."""
SILENCE = 60.0
"""Seconds after which one that has asked is closed on which nothing comes, or whose client reads nothing."""


class Sequels:
    """A thread that has tuning jobs and executions of pipelines go on when one of their jobs is over."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._waiting: queue.Queue[Record | None] = queue.Queue(MOST_WAITING)
        self._thread = threading.Thread(target=self._run, name="sequels", daemon=True)
        context.state.listen(self._put)
        self._thread.start()

    def _put(self, record: Record) -> None:
        if record.parent and record.ended is not None:
            try:
                self._waiting.put_nowait(record)
            except queue.Full:
                self._context.say(f"{MOST_WAITING:,} ends of jobs wait; nothing goes on after that of {record.name}")

    def close(self) -> None:
        """Returns when what has ended so far is followed, or a little later."""
        with contextlib.suppress(queue.Full):
            self._waiting.put(None, timeout=LONGEST_SEQUEL)
        self._thread.join(LONGEST_SEQUEL)

    def _run(self) -> None:
        while (record := self._waiting.get()) is not None:
            try:
                tuning_jobs.changed(self._context, record)
                executions.changed(self._context, record)
            except Exception:
                self._context.say(f"{record.name}: {traceback.format_exc()}")


class RequestHandler(MotoRequestHandler):
    """How a connection is read: names of headers as moto wants them, and no line per request."""

    protocol_version = "HTTP/1.1"  # clients keep their connections
    timeout = FIRST_SILENCE

    def parse_request(self) -> bool:
        found = super().parse_request()
        self.connection.settimeout(SILENCE)  # a body may come slowly, and so may a client read
        return found

    def log_request(self, code: Any = "-", size: Any = "-") -> None:
        pass


class HttpServer(ThreadedWSGIServer):
    """A thread per connection, up to a bound. ``say`` prints a line."""

    daemon_threads = True  # a client that goes on sending holds no end of the server

    def __init__(self, settings: Settings, application: Any, listening: socket.socket, say: Callable[[str], None]):
        self._room = threading.BoundedSemaphore(MOST_CONNECTIONS)
        self._say = say
        super().__init__(settings.host, settings.port, application, handler=RequestHandler, fd=listening.detach())

    def process_request(self, request: Any, client_address: Any) -> None:
        if not self._room.acquire(blocking=False):
            self._say(f"a connection is refused: there are {MOST_CONNECTIONS} already")
            self.shutdown_request(request)
            return
        super().process_request(request, client_address)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._room.release()

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
        self._sequels = Sequels(context)
        self._jobs.start()
        for load in (moto.load_ahead, validation.service):
            threading.Thread(target=load, daemon=True).start()
        threading.Thread(target=self._http.serve_forever, name="http", daemon=True).start()

    def close(self) -> None:
        self._jobs.close()
        self._sequels.close()
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
    """Runs a server; ``ready`` is called with its settings and its directory's descriptor once it answers."""

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
