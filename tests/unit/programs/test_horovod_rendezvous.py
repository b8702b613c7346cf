"""Horovod's rendezvous server: its protocol over real sockets, and its limits."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Iterator

import pytest

from musterpoint.programs import horovod_rendezvous
from musterpoint.programs.horovod_rendezvous import Refused, Server, Store, parse

from ...ports import free_port


class Running:
    """A server in a thread of its own."""

    def __init__(self, most: int = 1000) -> None:
        self.server = Server(0, "127.0.0.1", most)
        self.port = self.server.address[1]
        self._ended = False
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while not self._ended:
            self.server.turn()

    def ask(self, method: str, path: str, body: bytes | None = None) -> tuple[int, bytes]:
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}{path}", data=body, method=method)
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return answer.status, answer.read()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read()

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout=60)

    def close(self) -> None:
        self._ended = True
        self.connect().close()
        self._thread.join()
        self.server.close()


@pytest.fixture
def running() -> Iterator[Running]:
    server = Running()
    yield server
    server.close()


def received(sock: socket.socket) -> bytes:
    """Everything until the server closes."""
    data = b""
    while piece := sock.recv(1 << 16):
        data += piece
    return data


def test_a_value_is_what_was_put_last(running: Running) -> None:
    assert running.ask("GET", "/local_algo-1/rank_0") == (404, b"")
    assert running.ask("PUT", "/local_algo-1/rank_0", b"one\r\n\r\n\0") == (200, b"")
    assert running.ask("GET", "/local_algo-1/rank_0") == (200, b"one\r\n\r\n\0")
    assert running.ask("GET", "/global/rank_0") == (404, b"")
    assert running.ask("PUT", "/local_algo-1/rank_0", b"") == (200, b"")
    assert running.ask("GET", "/local_algo-1/rank_0") == (200, b"")


def test_a_rank_that_found_its_peers_takes_its_own_values_along(running: Running) -> None:
    for key in ("rank_0", "0", "rank_1", "1"):
        running.ask("PUT", f"/global/{key}", b"x")
    assert running.ask("DELETE", "/global/0") == (200, b"")
    assert running.ask("GET", "/global/rank_0")[0] == 404
    assert running.ask("GET", "/global/1") == (200, b"x")
    running.ask("DELETE", "/global/1")
    running.ask("DELETE", "/global/1")
    assert running.server.store.size == 0


def test_an_address_that_is_not_there_yet_is_waited_for(running: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(horovod_rendezvous, "HOLD_SECONDS", 60.0)
    with running.connect() as early:
        early.sendall(b"GET /global/7 HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n")
        with running.connect() as other:  # served while the first one waits
            other.sendall(b"GET /global/rank_7 HTTP/1.1\r\n\r\n")
            assert other.recv(99).startswith(b"HTTP/1.1 404 ")
        running.ask("PUT", "/global/7", b"here")
        assert early.recv(99) == b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nhere"


def test_it_is_waited_for_so_long_only(running: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(horovod_rendezvous, "HOLD_SECONDS", 0.05)
    began = time.monotonic()
    assert running.ask("GET", "/global/7") == (404, b"")
    assert time.monotonic() - began > 0.04


def test_a_client_that_leaves_while_it_waits_is_forgotten(running: Running) -> None:
    with running.connect() as sock:
        sock.sendall(b"GET /global/7 HTTP/1.1\r\n\r\n")
        assert running.ask("GET", "/global/rank_7")[0] == 404
    assert running.ask("PUT", "/global/7", b"late") == (200, b"")


def test_requests_may_come_in_pieces_and_in_heaps(running: Running) -> None:
    with running.connect() as sock:
        for piece in (b"PUT /a/b HT", b"TP/1.1\r\ncontent-length:", b" 6\r\n\r\nabc", b"def"):
            sock.sendall(piece)
            running.ask("GET", "/a/c")
        assert sock.recv(99).startswith(b"HTTP/1.1 200 ")
        sock.sendall(b"GET /a/b HTTP/1.1\r\n\r\n" * 3 + b"WHAT /a/b HTTP/1.1\r\n\r\n")
        answers = received(sock)
        assert answers.count(b"abcdef") == 3
        assert b"HTTP/1.1 501 " in answers


def test_an_answer_larger_than_the_socket_takes_at_once(running: Running) -> None:
    value = os.urandom(3 << 20)
    assert running.ask("PUT", "/a/b", value) == (200, b"")
    with running.connect() as slow:
        slow.sendall(b"GET /a/b HTTP/1.1\r\n\r\n" * 4)
        assert running.ask("GET", "/a/b") == (200, value)
        slow.shutdown(socket.SHUT_WR)
    with running.connect() as sock:
        sock.sendall(b"GET /a/b HTTP/1.1\r\n\r\n" * 2 + b"X /a/b HTTP/1.1\r\n\r\n")
        assert received(sock).count(value) == 2


@pytest.mark.parametrize(
    ("request_text", "status"),
    [
        (b"nonsense\r\n\r\n", b"400"),
        (b"GET /only HTTP/1.1\r\n\r\n", b"400"),
        (b"GET /a/b/c HTTP/1.1\r\n\r\n", b"400"),
        (b"PUT /a/b HTTP/1.1\r\nContent-Length: -1\r\n\r\n", b"400"),
        (b"PUT /a/b HTTP/1.1\r\nContent-Length: 99999999\r\n\r\n", b"413"),
        (b"PUT /a/b HTTP/1.1\r\nContent-Length: " + b"9" * 5000 + b"\r\n\r\n", b"413"),
        (b"PUT /a/b HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n", b"501"),
        (b"GET /a/" + b"b" * 20000, b"431"),
    ],
)
def test_what_it_refuses(running: Running, request_text: bytes, status: bytes) -> None:
    with running.connect() as sock:
        sock.sendall(request_text)
        assert received(sock).split(b" ")[1] == status


def test_memory_is_bounded(running: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(horovod_rendezvous, "LARGEST_STORE", 1000)
    assert running.ask("PUT", "/a/b", bytes(600)) == (200, b"")
    with running.connect() as sock:
        sock.sendall(b"PUT /a/c HTTP/1.1\r\nContent-Length: 600\r\n\r\n" + bytes(600))
        assert received(sock) == b""
    assert running.ask("GET", "/a/c") == (404, b"")
    assert running.ask("DELETE", "/a/b") == (200, b"")
    assert running.ask("PUT", "/a/c", bytes(600)) == (200, b"")


def test_connections_are_bounded_and_idle_ones_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(horovod_rendezvous, "IDLE_SECONDS", 2.0)
    running = Running(most=2)
    try:
        socks = [running.connect() for _ in range(3)]
        assert received(socks[2]) == b"", "one too many"
        assert received(socks[0]) == received(socks[1]) == b"", "said nothing"
        assert running.ask("PUT", "/a/b", b"x") == (200, b"")
    finally:
        running.close()
        for sock in socks:
            sock.close()


def test_sixty_four_ranks_find_each_other_at_once(running: Running) -> None:
    """As Gloo's connectFullMesh does, with a connection for each request."""
    ranks, wrong = 64, []

    def meet(rank: int) -> None:
        running.ask("PUT", f"/global/{rank}", b"%d" % rank * 100)
        for other in range(ranks):
            status, body = running.ask("GET", f"/global/{other}")
            while status == 404:
                status, body = running.ask("GET", f"/global/{other}")
            if (status, body) != (200, b"%d" % other * 100):
                wrong.append((rank, other, status, body))

    threads = [threading.Thread(target=meet, args=(rank,)) for rank in range(ranks)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    for rank in range(ranks):
        running.ask("DELETE", f"/global/{rank}")
    assert running.server.store.size == 0


def test_it_runs_as_a_script_on_one_address_until_it_is_killed() -> None:
    port = free_port()
    command = [sys.executable, "-I", "-W", "error", str(Path(horovod_rendezvous.__file__)), str(port), "127.0.0.2"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    try:
        deadline = time.monotonic() + 100
        while True:
            try:
                with socket.create_connection(("127.0.0.2", port), timeout=5):
                    break
            except ConnectionRefusedError:
                assert time.monotonic() < deadline and process.poll() is None
                time.sleep(0.01)
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", port), timeout=5)
        second = subprocess.run(command, capture_output=True, text=True, check=False, timeout=100)
        assert second.returncode == 1
        assert f"can't listen on 127.0.0.2:{port}: Address already in use" in second.stderr
    finally:
        process.kill()
        said = process.communicate()[0]
    assert said == b""


def test_an_address_that_is_not_this_hosts_means_every_one() -> None:
    server = Server(0, "192.0.2.1")
    assert server.address[0] == "0.0.0.0"
    server.close()


def test_room_is_what_the_system_lets_us_have() -> None:
    code = "import runpy,resource; r=runpy.run_path(__import__('sys').argv[1]); print(r['room']())"
    done = subprocess.run(
        ["sh", "-c", 'ulimit -n 100; exec "$@"', "sh", sys.executable, "-c", code, horovod_rendezvous.__file__],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout == "84\n"


def test_parse_waits_for_the_whole() -> None:
    text = b"PUT /a/b HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc"
    for end in range(len(text)):
        assert parse(text[:end]) is None
    request = parse(text + b"GET")
    assert request is not None
    assert (request.method, request.path, request.body, request.size) == ("PUT", "/a/b", b"abc", len(text))
    with pytest.raises(Refused):
        parse(b"GET / HTTP/2\r\n\r\n")


def test_the_store_knows_its_size() -> None:
    store = Store()
    store.put(("a", "1"), b"12345")
    store.put(("a", "1"), b"1")
    store.put(("a", "rank_1"), b"host")
    assert store.size == 3 + 11
    store.delete(("a", "1"))
    assert (store.size, store.get(("a", "1"))) == (0, None)
