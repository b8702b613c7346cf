"""The desk: lines in, lines and descriptors out, over a real socket."""

from __future__ import annotations

import os
import socket
from typing import Iterator

import pytest

from musterpoint.loop import Loop
from musterpoint.supervise.desk import LONGEST_LINE, Desk, Visitor, address_of


class Room:
    """A desk, the lines its visitors say, and how many have left."""

    def __init__(self) -> None:
        self.loop = Loop()
        self.visitors: list[Visitor] = []
        self.said: list[str] = []
        self.gone = 0
        self.desk = Desk(self.loop, self.greet)

    def greet(self, visitor: Visitor) -> None:
        self.visitors.append(visitor)
        visitor.on_line = lambda words, line: self.said.append(line)
        visitor.on_gone = self.left

    def left(self) -> None:
        self.gone += 1

    def enter(self) -> socket.socket:
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        sock.settimeout(60)
        sock.connect(address_of(self.desk.address))
        self.turn(1)
        return sock

    def turn(self, rounds: int) -> None:
        for _ in range(rounds):
            self.loop.turn(0.2)


@pytest.fixture
def room() -> Iterator[Room]:
    room = Room()
    yield room
    room.desk.close()
    room.loop.close()


def test_lines_come_whole_however_they_travel(room: Room) -> None:
    with room.enter() as sock:
        for piece in (b"rank 0 0", b" 1 77 0\nstar", b"ted 5\n\xff\n"):
            sock.sendall(piece)
            room.turn(1)
        assert room.said == ["rank 0 0 1 77 0", "started 5", "�"]
    room.turn(1)
    assert room.gone == 1


def test_descriptors_travel_beside_a_line(room: Room) -> None:
    read, write = os.pipe()
    with room.enter() as sock:
        room.visitors[0].tell("go", (write,))
        data, descriptors, _flags, _address = socket.recv_fds(sock, 16, 4)
        assert data == b"go\n"
        os.write(descriptors[0], b"through")
        assert os.read(read, 16) == b"through"
        for fd in (read, write, *descriptors):
            os.close(fd)


def test_a_visitor_that_left_is_told_in_vain(room: Room) -> None:
    room.enter().close()
    for _ in range(3):
        room.visitors[0].tell("release")
    room.turn(1)
    assert room.gone == 1


def test_a_line_without_an_end_is_not_collected_for_ever(room: Room) -> None:
    with room.enter() as sock:
        sent = 0
        sock.setblocking(False)
        while not room.gone:
            try:
                sent += sock.send(b"x" * 65536)
            except BlockingIOError:
                pass
            except (BrokenPipeError, ConnectionResetError):
                break
            room.turn(1)
        assert sent <= LONGEST_LINE + (1 << 20)
    assert room.said == []


def test_the_address_is_nobodys_afterwards() -> None:
    room = Room()
    room.desk.close()
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock, pytest.raises(OSError):
        sock.connect(address_of(room.desk.address))
    room.loop.close()
