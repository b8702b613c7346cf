"""How a connection is read: names of headers as moto wants them, and no line per request."""

from __future__ import annotations

from typing import Any

from moto.moto_server.werkzeug_app import MotoRequestHandler


class RequestHandler(MotoRequestHandler):
    """HTTP/1.1, so that clients keep their connections."""

    protocol_version = "HTTP/1.1"

    def log_request(self, code: Any = "-", size: Any = "-") -> None:
        pass
