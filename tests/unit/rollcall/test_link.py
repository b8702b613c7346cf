"""One connection: queues, ends, and a farewell that waits for nobody long."""

from __future__ import annotations

import socket
import threading
import time
from typing import Any, Iterator

import pytest

from musterpoint.loop import Loop
from musterpoint.rollcall import wire
from musterpoint.rollcall.link import Link, farewell, plain_address


class Ends:
    """A link and the raw socket at its other end."""

    def __init__(self) -> None:
        self.loop = Loop()
        listener = socket.socket()
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        near = socket.create_connection(listener.getsockname())
        self.far, _ = listener.accept()
        listener.close()
        self.frames: list[bytes] = []
        self.ends: list[tuple[str, bool]] = []
        self.link = Link(
            self.loop, near, "127.0.0.1", 1000,
            lambda _link, payload: self.frames.append(payload), lambda _link, why, eof: self.ends.append((why, eof)),
        )  # fmt: skip

    def turn(self, times: int = 3) -> None:
        for _ in range(times):
            self.loop.turn(0.05)

    def until(self, outcomes: list[Any], count: int = 1) -> None:
        while len(outcomes) < count:
            self.loop.turn(60.0)


@pytest.fixture
def ends() -> Iterator[Ends]:
    made = Ends()
    yield made
    made.link.close()
    made.far.close()
    made.loop.close()


def test_frames_come_in(ends: Ends) -> None:
    ends.far.sendall(wire.frame(b"one") + wire.frame(b"two")[:3])
    ends.turn()
    ends.far.sendall(wire.frame(b"two")[3:])
    ends.until(ends.frames, 2)
    assert ends.frames == [b"one", b"two"]


def test_the_other_end_closes(ends: Ends) -> None:
    ends.far.close()
    ends.until(ends.ends)
    assert ends.ends == [("it closed the connection", True)]
    ends.link.send(b"into the void")
    ends.turn()
    assert len(ends.ends) == 1


def test_a_reset_is_an_end_too(ends: Ends) -> None:
    ends.link.send(b"x")
    ends.far.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    ends.far.close()
    ends.until(ends.ends)
    assert ends.ends == [("connection reset by peer", True)]


def test_too_large_a_frame_ends_it(ends: Ends) -> None:
    ends.far.sendall(wire.frame(b"x" * 1001))
    ends.until(ends.ends)
    assert ends.ends == [("it sent a frame of 1001 bytes where at most 1000 are expected", True)]


def test_a_slow_reader_gets_everything(ends: Ends) -> None:
    data = bytes(range(256)) * 40_000
    ends.link.send(data)
    ends.link.send(b"end")
    assert ends.link.busy
    got = b""
    ends.far.settimeout(60)
    while len(got) < len(data) + 3:
        ends.loop.turn(0)
        got += ends.far.recv(1 << 20)
    assert got == data + b"end"
    ends.turn()
    assert not ends.link.busy


def test_who_never_reads_is_given_up(ends: Ends) -> None:
    for _ in range(9):
        ends.link.send(b"x" * (10 << 20))
    assert ends.ends == [("it does not read what it is sent", False)]


def test_a_farewell_flushes_and_waits_for_the_reader(ends: Ends) -> None:
    data = b"x" * (8 << 20)
    got: list[int] = []

    def read() -> None:
        total = 0
        while more := ends.far.recv(1 << 20):
            total += len(more)
        got.append(total)
        ends.far.close()

    ends.link.send(data)
    reader = threading.Thread(target=read)
    reader.start()
    farewell([ends.link], 10.0)
    reader.join()
    assert got == [len(data)]


def test_a_farewell_to_a_dead_peer_is_short(ends: Ends) -> None:
    ends.link.send(b"x" * (32 << 20))
    started = time.monotonic()
    farewell([ends.link], 0.3)
    assert time.monotonic() - started < 20


def test_addresses_are_plain() -> None:
    assert plain_address("::ffff:10.0.0.1") == "10.0.0.1"
    assert plain_address("fe80::1%eth0") == "fe80::1"
    assert plain_address("fd00::1") == "fd00::1"
