"""A stand-in for Azure's metadata service: the machine's name, and scheduled events that a test sets."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


def event(kind: str, *machines: str, status: str = "Scheduled") -> dict[str, Any]:
    """An event as Microsoft documents it."""
    return {
        "EventId": f"4CAEA225-{kind}", "EventStatus": status, "EventType": kind, "ResourceType": "VirtualMachine",
        "Resources": list(machines), "NotBefore": "Thu, 22 Jul 2021 04:50:17 GMT", "Description": "",
        "EventSource": "Platform", "DurationInSeconds": -1,
    }  # fmt: skip


class Metadata:
    """Answers at :attr:`url` for the machine ``vm1``, which ``/preempt`` there takes away.

    ``asked`` is set at the first question for events.
    """

    def __init__(self) -> None:
        self.events: list[Any] = []
        self.asked = threading.Event()
        service = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                body = "vm1"
                if self.path == "/preempt":
                    service.events.append(event("Preempt", "vm1"))
                elif self.headers.get("Metadata") != "true":
                    self.send_error(400)
                    return
                if self.path.startswith("/metadata/scheduledevents?api-version="):
                    body = json.dumps({"DocumentIncarnation": 2, "Events": service.events})
                    service.asked.set()
                self.send_response(200)
                self.end_headers()
                self.wfile.write(body.encode())

            def log_message(self, *_words: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05})
        self._thread.start()
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()
