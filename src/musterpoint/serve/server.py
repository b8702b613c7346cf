"""The server: one process that listens, answers and has jobs run, until it is told to end."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import sys
import threading
from typing import Callable, Mapping

from werkzeug.serving import BaseWSGIServer, make_server

from musterpoint.base.errors import UsageError
from musterpoint.serve import running, validation
from musterpoint.serve.context import Context
from musterpoint.serve.credentials import Credentials, made_or_given
from musterpoint.serve.dispatch import Dispatcher
from musterpoint.serve.kept_objects import KeptObjects
from musterpoint.serve.kept_telemetry import KeptTelemetry
from musterpoint.serve.moto_services import MotoServices
from musterpoint.serve.notices import Notices
from musterpoint.serve.on_change import OnChange
from musterpoint.serve.page import Page
from musterpoint.serve.request_handler import RequestHandler
from musterpoint.serve.runner import Runner
from musterpoint.serve.sequels import Sequels
from musterpoint.serve.settings import Settings
from musterpoint.serve.state import State

IGNORED = "*\n"


class RunningServer:
    """A server that answers. Used as the constructor, :meth:`serve`, :meth:`close`; from the main thread."""

    def __init__(self, settings: Settings, environ: Mapping[str, str], say: Callable[[str], None]) -> None:
        os.makedirs(settings.data, mode=0o700, exist_ok=True)
        self._lock = running.lock(settings.data)
        with open(os.path.join(settings.data, ".gitignore"), "w", encoding="utf-8") as file:
            file.write(IGNORED)
        access_key, secret_key = made_or_given(settings.data, environ)
        listening = _listen(settings)
        port = listening.getsockname()[1]
        self.settings = settings._replace(port=port, access_key=access_key, secret_key=secret_key)
        self._state = State(settings.data)
        self._notices = Notices(settings.data)
        self._runner = Runner(self.settings, self._state, self._notices)
        moto = MotoServices(self.settings)
        context = Context(self.settings, self._state, self._runner, self._notices, moto, say)
        kept = KeptObjects(settings.data, moto)
        telemetry = KeptTelemetry(settings.data, settings.region, moto)
        credentials = Credentials(settings.data, access_key, secret_key)
        dispatcher = Dispatcher(context, credentials, kept, telemetry, Page(context))
        self._server: BaseWSGIServer = make_server(
            settings.host, port, dispatcher, threaded=True, request_handler=RequestHandler, fd=listening.detach()
        )
        self._on_change = OnChange(self.settings, self._state, say) if settings.on_change else None
        if self._on_change is not None:
            self._notices.listen(self._on_change.changed)
            self._on_change.start()
        self._notices.start()
        self._sequels = Sequels(context)
        self._sequels.start()
        self._runner.start()
        threading.Thread(target=kept.load, name="objects", daemon=True).start()
        threading.Thread(target=telemetry.load, name="kept telemetry", daemon=True).start()
        threading.Thread(target=validation.service, name="model", daemon=True).start()

    def serve(self) -> None:
        """Answers until SIGTERM or SIGINT."""
        serving = threading.Thread(target=self._server.serve_forever, name="http")
        ended, end = os.pipe()
        os.set_blocking(end, False)
        signal.set_wakeup_fd(end)  # another thread may get the signal, which wakes no main thread that waits for a lock
        for signo in (signal.SIGTERM, signal.SIGINT):
            signal.signal(signo, lambda number, frame: None)
        if self.settings.end_with_stdin:
            threading.Thread(target=_at_end_of_stdin, args=(end,), name="stdin", daemon=True).start()
        serving.start()
        os.read(ended, 1)
        self._runner.close()
        self._server.shutdown()
        serving.join()

    def close(self) -> None:
        self._sequels.close()
        if self._on_change is not None:
            self._on_change.close()
        self._server.server_close()
        self._state.close()
        os.close(self._lock)


def _at_end_of_stdin(end: int) -> None:
    while os.read(0, 1024):
        pass
    os.write(end, b"\0")


def _listen(settings: Settings) -> socket.socket:
    """A free port is the one that the former server had, if that is free: its jobs know it."""
    if settings.port == 0:
        with contextlib.suppress(UsageError):
            port = running.former_port(settings.data)
            return _listen_at(settings._replace(port=port)) if port else _listen_at(settings)
    return _listen_at(settings)


def _listen_at(settings: Settings) -> socket.socket:
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


def main(settings: Settings, environ: Mapping[str, str], ready: Callable[[Settings], None]) -> int:
    """Runs a server; ``ready`` is called with its settings once it answers."""

    def say(text: str) -> None:
        print(f"[muster serve] {text}", file=sys.stderr, flush=True)

    server = RunningServer(settings, environ, say)
    try:
        ready(server.settings)
        server.serve()
    finally:
        server.close()
    return 0
