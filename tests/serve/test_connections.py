"""Clients that are slow, silent or many, at the server's own HTTP server."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
import urllib.parse
from collections.abc import Iterable, Iterator
from typing import Any

import pytest

from musterpoint.serve import server
from musterpoint.serve.job_run import Relay
from musterpoint.serve.server import HttpServer
from musterpoint.serve.settings import Settings

MOST = 4
ASKS = b"GET / HTTP/1.1\r\nHost: here\r\n\r\n"


class Here:
    """An HTTP server with room for a few; ``/slow`` is answered in two parts, the second on ``go_on``."""

    def __init__(self) -> None:
        self.said: list[str] = []
        self.is_slow, self.go_on = threading.Event(), threading.Event()
        listening = socket.create_server(("127.0.0.1", 0))
        self.address = listening.getsockname()
        settings = Settings("", host="127.0.0.1", port=self.address[1])
        self.http = HttpServer(settings, self.answer, listening, self.said.append)
        self.thread = threading.Thread(target=self.http.serve_forever)
        self.thread.start()

    def answer(self, environ: dict[str, Any], start: Any) -> Iterable[bytes]:
        start("200 OK", [("Content-Length", "8")])
        yield b"half"
        if environ["PATH_INFO"] == "/slow":
            self.is_slow.set()
            self.go_on.wait()
        yield b"half"

    def connect(self, said: bytes) -> socket.socket:
        client = socket.create_connection(self.address, timeout=60)
        client.sendall(said)
        return client


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> Iterator[Here]:
    monkeypatch.setattr(server, "MOST_CONNECTIONS", MOST)
    found = Here()
    yield found
    found.go_on.set()
    found.http.shutdown()
    found.thread.join()


def rest(client: socket.socket) -> bytes:
    found = b""
    with client, contextlib.suppress(ConnectionError):
        while part := client.recv(4096):
            found += part
    return found


@pytest.mark.parametrize("said", [b"", b"GET / HT", ASKS + b"more and "])
def test_slow_ones_shut_nobody_out(here: Here, said: bytes) -> None:
    """Silent ones, ones in the middle of their headers, and ones that go on sending behind their request."""
    slow = [here.connect(said) for _ in range(2 * MOST)]
    for _ in range(3):
        assert rest(here.connect(ASKS)).endswith(b"halfhalf")
    for each in slow[:MOST]:
        assert rest(each) == b"" or said.startswith(ASKS)
    assert len(here.said) <= 1, "a line for all"
    for each in slow:
        each.close()


def test_who_is_answered_is_never_cut(here: Here) -> None:
    answered = here.connect(ASKS.replace(b"/ ", b"/slow "))
    assert here.is_slow.wait(60)
    slow = [here.connect(b"GET") for _ in range(2 * MOST)]
    assert rest(here.connect(ASKS)).endswith(b"halfhalf")
    here.go_on.set()
    assert rest(answered).endswith(b"halfhalf")
    for each in slow:
        each.close()


def test_one_more_than_can_be_answered_is_refused(here: Here) -> None:
    answered = []
    for _ in range(MOST):
        here.is_slow.clear()
        answered.append(here.connect(ASKS.replace(b"/ ", b"/slow ")))
        assert here.is_slow.wait(60)
    assert [rest(here.connect(ASKS)) for _ in range(3)] == [b""] * 3
    assert len(here.said) == 1 and f"{MOST} are being answered" in here.said[0]
    here.go_on.set()
    assert all(rest(each).endswith(b"halfhalf") for each in answered)


def test_headers_come_in_time_or_never(here: Here, monkeypatch: pytest.MonkeyPatch) -> None:
    """However often a byte comes."""
    monkeypatch.setattr(server, "WHOLE_HEAD", 0.3)
    slow = [here.connect(b"GET / HTTP/1.1\r\nX: ") for _ in range(2)]
    over = threading.Event()

    def send() -> None:
        with contextlib.suppress(OSError):
            while not over.wait(0.05):
                slow[0].sendall(b"y")

    sender = threading.Thread(target=send)
    sender.start()
    assert rest(slow[1]) == rest(slow[0]) == b""
    over.set()
    sender.join()
    assert len(here.said) == 1


@pytest.mark.parametrize("which", [0, 1])
@pytest.mark.parametrize("is_reset", [False, True])
def test_a_relay_passes_on_how_a_connection_ends(which: int, is_reset: bool) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        relay = Relay("127.0.0.1", Settings("", port=listening.getsockname()[1]))
        place = urllib.parse.urlsplit(relay.url)
        near = socket.create_connection((place.hostname, place.port), 60)
        far = listening.accept()[0]
    far.settimeout(60)
    here, there = (near, far)[:: -1 if which else 1]
    with here, there:
        here.sendall(b"asks")
        if is_reset:
            assert there.recv(100) == b"asks"
            here.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            here.close()
            with pytest.raises(ConnectionResetError):
                there.recv(1)
        else:
            here.shutdown(socket.SHUT_WR)
            assert there.makefile("rb").read() == b"asks"
            there.sendall(b"answers")
            there.close()
            assert here.makefile("rb").read() == b"answers"
    relay.close()
