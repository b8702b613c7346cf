"""moto's services inside of this process: S3, IAM, STS, CloudWatch and all others that aren't ours."""

from __future__ import annotations

import threading
from typing import Any, Callable, Iterable

from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from werkzeug.test import Client
from werkzeug.wrappers import Response

from musterpoint.serve.requests import Start
from musterpoint.serve.settings import Settings

Wsgi = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]


class MotoServices:
    """The WSGI application of all of them."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self.loaded = threading.Event()
        """Set when everything that a former server had is back."""
        self._dispatcher = DomainDispatcherApplication(create_backend_app)

    def application(self, environ: dict[str, Any]) -> Wsgi:
        """The application that answers the request."""
        found: Wsgi = self._dispatcher.get_application(environ)
        return found

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        return self.application(environ)(environ, start_response)

    def answered(self, environ: dict[str, Any], start: Start) -> tuple[list[bytes], bool]:
        """The answer to a request, whole, and whether it is a success."""
        statuses: list[str] = []

        def started(status: str, headers: list[tuple[str, str]], *more: Any) -> Callable[[bytes], Any]:
            statuses.append(status)
            given: Callable[[bytes], Any] = start(status, headers, *more)
            return given

        answer = self(environ, started)
        try:
            return list(answer), statuses[0].startswith("2")
        finally:
            getattr(answer, "close", lambda: None)()

    def call(self, service: str, method: str, path: str, body: bytes = b"", **headers: str) -> Response:
        """What ``service`` answers to a request of our own; names of headers have ``_`` for ``-``."""
        self.loaded.wait()
        return self.call_now(service, method, path, body, **headers)

    def call_now(self, service: str, method: str, path: str, body: bytes = b"", **headers: str) -> Response:
        """The same, while what a former server had is brought back."""
        signed = f"AWS4-HMAC-SHA256 Credential={self._settings.access_key or 'muster'}/20260101/"
        signed += f"{self._settings.region}/{service}/aws4_request, SignedHeaders=host, Signature=0"
        given = {name.replace("_", "-"): value for name, value in headers.items()}
        client = Client(self, Response)
        return client.open(
            path, method=method, data=body, base_url=self._settings.url, headers={"Authorization": signed, **given}
        )
