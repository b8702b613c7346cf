"""Clients that are slow, silent or many, at the server's own HTTP server."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
import time
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
LONG = 1 << 26
"""More than a connection holds that nobody reads."""


def sends(count: int, path: str = "/", *more: str) -> bytes:
    """The headers of a request with a body."""
    lines = (f"POST {path} HTTP/1.1", "Host: here", f"Content-Length: {count}", *more)
    return "".join(f"{line}\r\n" for line in (*lines, "")).encode()


class Here:
    """An HTTP server with room for a few. It reads a body in two parts. ``/slow`` is answered in two parts, too, the
    second on ``go_on``; ``/long`` at length.
    """

    def __init__(self) -> None:
        self.said: list[str] = []
        self.is_slow, self.has_read, self.go_on = threading.Event(), threading.Event(), threading.Event()
        listening = socket.create_server(("127.0.0.1", 0))
        self.address = listening.getsockname()
        settings = Settings("", host="127.0.0.1", port=self.address[1])
        self.http = HttpServer(settings, self.answer, listening, self.said.append)
        self.thread = threading.Thread(target=self.http.serve_forever)
        self.thread.start()

    def answer(self, environ: dict[str, Any], start: Any) -> Iterable[bytes]:
        body, rest = environ["wsgi.input"], int(environ.get("CONTENT_LENGTH") or 0)
        if rest:
            body.read(rest // 2)
            self.has_read.set()
            body.read(rest - rest // 2)
        if environ["PATH_INFO"] == "/long":
            start("200 OK", [("Content-Length", str(LONG))])
            yield bytes(LONG)
            return
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
    found = bytearray()
    with client, contextlib.suppress(ConnectionError):
        while part := client.recv(1 << 20):
            found += part
    return bytes(found)


@pytest.mark.parametrize("said", [b"", b"GET / HT", ASKS + b"more and ", sends(3000) + b"x"])
def test_slow_ones_shut_nobody_out(here: Here, said: bytes) -> None:
    """Silent ones, ones in the middle of their headers or body, and ones that go on sending behind their request."""
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


def test_who_sends_fast_enough_is_never_cut(here: Here, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "MOST_AHEAD", 600.0)
    body = bytes(2 << 20)
    sending = here.connect(sends(len(body)) + body[: len(body) // 2])
    assert here.has_read.wait(60)
    slow = [here.connect(sends(3000)) for _ in range(2 * MOST)]
    assert rest(here.connect(ASKS)).endswith(b"halfhalf")
    sending.sendall(body[len(body) // 2 :])
    assert rest(sending).endswith(b"halfhalf")
    for each in slow:
        each.close()


def test_who_reads_nothing_of_a_long_answer_shuts_nobody_out(here: Here, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "MOST_AHEAD", 0.0)
    slow = [here.connect(ASKS.replace(b"/ ", b"/long ")) for _ in range(MOST)]
    for each in slow:
        assert each.recv(1)
    assert rest(here.connect(ASKS)).endswith(b"halfhalf")
    assert any(len(rest(each)) < LONG for each in slow), "one had to go"
    for each in slow:
        each.close()


def test_who_reads_slowly_gets_all_of_a_long_answer(here: Here, monkeypatch: pytest.MonkeyPatch) -> None:
    """It may take longer than a silence may."""
    monkeypatch.setattr(server, "SILENCE", 1.0)
    client, begun, count = here.connect(ASKS.replace(b"/ ", b"/long ")), time.monotonic(), 0
    with client:
        while part := client.recv(1 << 20):
            count += len(part)
            time.sleep(0.05)
    assert count > LONG and time.monotonic() - begun > 3


def test_who_waits_for_leave_to_send_gets_it_once(here: Here) -> None:
    client = here.connect(sends(2, "/", "Expect: 100-continue"))
    assert client.recv(12) == b"HTTP/1.1 100"
    client.sendall(b"ab")
    assert rest(client).count(b"HTTP/1.1 ") == 1


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


@pytest.mark.parametrize("said", [b"GET / HTTP/1.1\r\nX: ", sends(3000)])
def test_a_request_comes_in_time_or_never(here: Here, monkeypatch: pytest.MonkeyPatch, said: bytes) -> None:
    """However often a byte comes."""
    monkeypatch.setattr(server, "SILENCE", 0.3)
    slow = [here.connect(said) for _ in range(2)]
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
