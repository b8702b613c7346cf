"""What the servers of this directory share: JSON in, JSON out, by Python's own HTTP server.

SIGTERM ends a server with 0: musterpoint sends it when the roles whose end is the job's are through.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Callable

Answer = Callable[[dict[str, Any]], dict[str, Any]]


def serve(answers: dict[str, Answer]) -> None:
    """Serves ``answers`` by path, at the port of the command line; GET /health gets 200."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    port = parser.parse_args().port

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._send(200 if self.path == "/health" else 404, {})

        def do_POST(self) -> None:
            asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            answer = answers.get(self.path)
            self._send(200 if answer else 404, answer(asked) if answer else {})

        def _send(self, status: int, value: dict[str, Any]) -> None:
            body = json.dumps(value).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            """A line for each request would be too many."""

    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    with ThreadingHTTPServer(("0.0.0.0", port), Handler) as server:
        server.daemon_threads = True
        print(f"serving at port {port}", flush=True)
        server.serve_forever()
