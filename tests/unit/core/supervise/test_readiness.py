"""When a program is ready: real sockets on the loopback, and lines through a real pump."""

from __future__ import annotations

import http.server
import os
import socket
import threading
from typing import Callable, Iterator

import pytest

from musterpoint.core.job.model import Readiness
from musterpoint.core.supervise.readiness import ReadyWatch

from .bench import Piped

HERE = ("127.0.0.1", 0)


class Bench(Piped):
    """``ready`` counts how often a watch has called."""

    def __init__(self) -> None:
        super().__init__()
        self.ready = 0
        self.watches: list[ReadyWatch] = []

    def watch(self, ready: Readiness, pids: Callable[[], list[int]] = list, name: str = "") -> ReadyWatch:
        watch = ReadyWatch(self.loop, self.pump, ready, name, pids, self.on_ready)
        self.watches.append(watch)
        return watch

    def on_ready(self) -> None:
        self.ready += 1
        self.loop.stop()

    def until_ready(self) -> None:
        while not self.ready:
            self.loop.turn(0.1)

    def looks(self, times: int) -> None:
        """Turns the loop until the watch has looked so often."""
        looked = []
        watch = self.watches[-1]
        look = watch._look
        watch._look = lambda: (looked.append(1), look())  # type: ignore[func-returns-value, method-assign]
        watch.begin()
        while len(looked) < times:
            self.loop.turn(0.1)

    def close(self) -> None:
        for watch in self.watches:
            watch.close()
        super().close()


@pytest.fixture
def bench() -> Iterator[Bench]:
    made = Bench()
    yield made
    made.close()


@pytest.fixture
def port() -> Iterator[int]:
    """A port where nobody listens, which is kept from others."""
    with socket.socket() as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(HERE)
        yield sock.getsockname()[1]


def listening(port: int, address: str = "127.0.0.1") -> socket.socket:
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    sock.bind((address, port))
    sock.listen()
    return sock


class Child:
    """A process that listens at ``port`` once it is told to."""

    def __init__(self, port: int) -> None:
        self.port = port
        go, self._go = os.pipe()
        ready, told = os.pipe()
        self.pid = os.fork()
        if not self.pid:
            os.close(self._go)
            if os.read(go, 1):
                server = listening(port)
                os.write(told, b"1")
                os.read(go, 1)
                server.close()
            os._exit(0)
        os.close(go)
        os.close(told)
        self._ready = ready

    def opens(self) -> None:
        os.write(self._go, b"1")
        os.read(self._ready, 1)

    def close(self) -> None:
        os.close(self._go)
        os.close(self._ready)
        os.waitpid(self.pid, 0)


@pytest.fixture
def child(port: int) -> Iterator[Child]:
    made = Child(port)
    yield made
    made.close()


def test_a_program_that_has_started_is_ready(bench: Bench) -> None:
    watch = bench.watch(Readiness())
    assert not bench.ready
    watch.begin()
    assert bench.ready == 1 and watch.is_over


def test_a_port_is_ready_once_our_program_has_opened_it(bench: Bench, child: Child) -> None:
    bench.watch(Readiness("port", child.port), lambda: [child.pid])
    bench.looks(2)
    assert not bench.ready
    child.opens()
    bench.until_ready()
    assert bench.ready == 1


def test_a_port_that_another_process_has_is_not_ours(bench: Bench, port: int, child: Child) -> None:
    """Whether that one had it before, or has opened it meanwhile."""
    watch = bench.watch(Readiness("port", port), lambda: [child.pid])
    with listening(port):
        bench.looks(3)
        assert not bench.ready
        watch.close()
        bench.watch(Readiness("port", port), lambda: [child.pid])
        bench.looks(3)
    assert not bench.ready


def test_a_port_in_the_kernels_table_of_another_namespace_answers(bench: Bench, port: int, tmp_path: os.PathLike[str]
) -> None:  # fmt: skip
    """A socket that this table doesn't have, and which was closed at the start."""
    early = ReadyWatch(bench.loop, bench.pump, Readiness("port", port), "", list, bench.on_ready, str(tmp_path))
    with listening(port):
        late = ReadyWatch(bench.loop, bench.pump, Readiness("port", port), "", list, bench.on_ready, str(tmp_path))
        bench.watches = [early, late]
        bench.looks(2)
        assert not bench.ready  # it was open at the start
        late.close()
        early.begin()
        bench.until_ready()
    assert bench.ready == 1


class Answers(http.server.BaseHTTPRequestHandler):
    """``codes`` are those of the next answers; the last one stays."""

    codes = [500, 404, 204]
    paths: list[str] = []

    def do_GET(self) -> None:
        self.paths.append(self.path)
        code = self.codes.pop(0) if len(self.codes) > 1 else self.codes[0]
        self.send_response(code)
        self.end_headers()

    def log_message(self, *words: object) -> None:
        """Says nothing."""


def test_a_server_is_ready_when_it_answers_with_2xx(bench: Bench) -> None:
    Answers.codes, Answers.paths = [500, 302, 204], []
    server = http.server.HTTPServer(HERE, Answers)
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    bench.watch(Readiness("http", server.server_port, "/health"), lambda: [os.getpid()]).begin()
    bench.until_ready()
    assert bench.ready == 1 and Answers.paths == ["/health"] * 3
    server.shutdown()
    server.server_close()


def test_a_line_is_found_in_the_output_of_its_own_program(bench: Bench) -> None:
    """Also where it comes in two pieces, the first of them at the end of another line."""
    watch = bench.watch(Readiness("line", 0, "startup complete"), name="policy")
    others, _ = bench.pump.open(None, "reward")
    ours, _ = bench.pump.open(None, "policy")
    bench.pump.start()
    os.write(others, b"startup complete\n")
    os.write(ours, b"loading\nINFO: startup com")
    bench.looks(2)
    assert not bench.ready and not watch.is_over
    os.write(ours, b"plete.\n")
    bench.until_ready()
    assert bench.ready == 1
    os.close(others)
    os.close(ours)
    bench.pump.drain(5)


def test_who_is_closed_calls_nobody(bench: Bench, child: Child) -> None:
    watch = bench.watch(Readiness("port", child.port), lambda: [child.pid])
    watch.begin()
    watch.close()
    child.opens()
    watch.begin()
    for _ in range(3):
        bench.loop.turn(0.05)
    assert not bench.ready
