"""A job's transfers while the connection to the server breaks."""

from __future__ import annotations

import http.server
import threading
from collections.abc import Iterator

import pytest

from musterpoint.serve.settings import Settings
from musterpoint.serve.transfers import Transfers

DATA = bytes(range(256)) * 2000


class Breaks(http.server.BaseHTTPRequestHandler):
    """Sends the half of what is asked for, and breaks the connection, three times."""

    asked: list[str | None]

    def do_GET(self) -> None:
        wanted = self.headers.get("Range")
        self.asked.append(wanted)
        rest = DATA[int(wanted.removeprefix("bytes=").rstrip("-")) :] if wanted else DATA
        self.send_response(206 if wanted else 200)
        self.send_header("Content-Length", str(len(rest)))
        self.end_headers()
        self.wfile.write(rest[: len(rest) // 2] if len(self.asked) <= 3 else rest)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def broken() -> Iterator[int]:
    Breaks.asked = []
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Breaks) as server:
        serving = threading.Thread(target=server.serve_forever)
        serving.start()
        yield server.server_port
        server.shutdown()
        serving.join()


def test_a_stream_goes_on_where_it_was(broken: int) -> None:
    settings = Settings("/nowhere", port=broken, access_key="a", secret_key="b")
    pieces = Transfers(settings, lambda: None).stream("s3://bucket/key")
    assert b"".join(pieces) == DATA
    half, more, most = len(DATA) // 2, len(DATA) * 3 // 4, len(DATA) * 7 // 8
    assert Breaks.asked == [None, f"bytes={half}-", f"bytes={more}-", f"bytes={most}-"]
