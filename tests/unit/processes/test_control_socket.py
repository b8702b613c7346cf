"""The control_socket: lines in, lines and descriptors out, over a real socket; who is heard, and what that may cost."""

from __future__ import annotations

import os
import socket
import time
from typing import Callable, Iterator

import pytest

from musterpoint.loop import Loop
from musterpoint.processes import control_socket as module
from musterpoint.processes.control_socket import (
    AT_ONCE,
    LONGEST_LINE,
    MOST_STRANGERS,
    Connection,
    ControlSocket,
    address_of,
)


class Room:
    """A control_socket, the lines its connections say, and how many have left."""

    def __init__(self) -> None:
        self.loop = Loop()
        self.connections: list[Connection] = []
        self.said: list[str] = []
        self.gone = 0
        self.warned: list[str] = []
        self.control_socket = ControlSocket(self.loop, self.greet, self.warned.append)

    def greet(self, connection: Connection) -> None:
        self.connections.append(connection)
        connection.on_line = lambda words, line: self.said.append(line)
        connection.on_gone = self.left

    def left(self) -> None:
        self.gone += 1

    def knock(self) -> socket.socket:
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        sock.settimeout(60)
        sock.connect(address_of(self.control_socket.address))
        return sock

    def enter(self) -> socket.socket:
        sock = self.knock()
        sock.sendall(self.control_socket.token.encode() + b"\n")
        self.until(lambda: bool(self.connections))
        return sock

    def until(self, done: Callable[[], bool]) -> None:
        deadline = self.loop.clock() + 60
        while not done():
            assert self.loop.clock() < deadline
            self.loop.turn(0.2)

    def turn(self, rounds: int) -> None:
        for _ in range(rounds):
            self.loop.turn(0.2)


@pytest.fixture
def room() -> Iterator[Room]:
    room = Room()
    yield room
    room.control_socket.close()
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
        room.connections[0].tell("go", (write,))
        data, descriptors, _flags, _address = socket.recv_fds(sock, 16, 4)
        assert data == b"go\n"
        os.write(descriptors[0], b"through")
        assert os.read(read, 16) == b"through"
        for fd in (read, write, *descriptors):
            os.close(fd)


def test_a_visitor_that_left_is_told_in_vain(room: Room) -> None:
    room.enter().close()
    for _ in range(3):
        room.connections[0].tell("release")
    room.turn(1)
    assert room.gone == 1


def test_a_visitor_that_does_not_read_holds_nothing_up(room: Room, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "HEARING", 0.1)
    with room.enter():
        room.connections[0].tell("x" * (8 << 20))
        room.until(lambda: room.gone == 1)


def test_a_visitor_that_is_ready_by_mistake_is_not_waited_for(room: Room) -> None:
    with room.enter() as sock:
        room.connections[0].read(1)
        room.connections[0].tell("hello")
        room.connections[0].read(1)
        assert sock.recv(16) == b"hello\n"
    room.until(lambda: room.gone == 1)


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
    room.control_socket.close()
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock, pytest.raises(OSError):
        sock.connect(address_of(room.control_socket.address))
    room.loop.close()


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


TOKENLESS = {
    "nothing": b"",
    "a rank": b"rank 0 0 1 77 0\n" * 4,
    "a launcher": b"inner 1\n" * 8,
    "another token": b"0" * 32 + b"\nrank 0 0 1 77 0\n",
    "a token without an end": b"TOKEN",
    "a token in other letters": b"token\nrank 0 0 1 77 0\n",
    "a longer token": b"TOKEN0\nrank 0 0 1 77 0\n",
    "a token behind something": b"\nTOKEN\nrank 0 0 1 77 0\n",
    "bytes": bytes(range(256)),
}


@pytest.mark.parametrize("said", TOKENLESS)
def test_nobody_is_heard_without_the_token(room: Room, said: str) -> None:
    token = room.control_socket.token.encode()
    with room.knock() as sock, room.enter() as other:
        sock.sendall(TOKENLESS[said].replace(b"TOKEN", token).replace(b"token", token.upper()))
        sock.shutdown(socket.SHUT_WR)
        other.sendall(b"heard\n")
        room.until(lambda: room.said == ["heard"])
        sock.setblocking(False)
        room.turn(3)
        try:
            assert sock.recv(1) == b""
        except ConnectionResetError:
            pass  # what it said was never read
    assert len(room.connections) == 1
    assert len(room.warned) == (0 if said in ("nothing", "a token without an end") else 1)
    assert room.control_socket.token not in "".join(room.warned)


@pytest.mark.parametrize("said", [b"\n", b"inner 1\n", b"rank 0 0 1 77 0\n"])
def test_a_line_that_is_no_token_is_an_answer(room: Room, said: bytes) -> None:
    """Such as that of a launcher of another version, which would wait for ours."""
    with room.knock() as sock:
        sock.sendall(said)
        room.until(lambda: len(room.warned) == 1)
        sock.settimeout(20)
        assert sock.recv(1) == b""
    assert "of the same version" in room.warned[0]


def test_the_token_may_come_in_pieces(room: Room) -> None:
    with room.knock() as sock:
        for byte in room.control_socket.token.encode() + b"\nhello\n":
            sock.sendall(bytes([byte]))
            room.turn(1)
        room.until(lambda: room.said == ["hello"])


def test_strangers_cost_little_and_keep_nobody_out(room: Room) -> None:
    before = descriptors()
    strangers = [room.knock() for _ in range(MOST_STRANGERS + 100)]
    mine = descriptors() - before
    with room.enter() as sock:
        sock.sendall(b"heard\n")
        room.until(lambda: room.said == ["heard"])
        room.turn(20)
        assert descriptors() - before - mine <= MOST_STRANGERS + 2
    for stranger in strangers:
        stranger.close()
    room.until(lambda: descriptors() <= before)


def test_a_stranger_that_says_nothing_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PATIENCE", 0.05)
    room = Room()
    with room.enter() as sock, room.knock() as first, room.knock() as second:
        for stranger in (first, second):
            stranger.setblocking(False)
        ended: set[int] = set()

        def both_ended() -> bool:
            for stranger in (first, second):
                try:
                    if stranger.recv(1) == b"":
                        ended.add(stranger.fileno())
                except BlockingIOError:
                    pass
            return len(ended) == 2

        room.until(both_ended)
        sock.sendall(b"still here\n")
        room.until(lambda: room.said == ["still here"])
    room.control_socket.close()
    room.loop.close()


def test_a_crowd_at_the_door_delays_nothing_else(room: Room) -> None:
    """What else is ready has its turn after a few, however many wait."""
    crowd = [room.knock() for _ in range(500)]
    before = descriptors()
    read, write = os.pipe()
    seen: list[int] = []
    room.loop.watch(read, 1, lambda ready: (seen.append(descriptors() - before), os.read(read, 1)))  # type: ignore[func-returns-value]
    os.write(write, b"x")
    room.turn(1)
    assert seen and seen[0] <= AT_ONCE + 2
    for sock in crowd:
        sock.close()
    room.loop.forget(read)
    os.close(read)
    os.close(write)


def test_without_a_descriptor_for_it_a_connection_waits(room: Room, monkeypatch: pytest.MonkeyPatch) -> None:
    resource = pytest.importorskip("resource")
    monkeypatch.setattr(module, "PAUSE", 0.05)
    sock = room.knock()
    sock.sendall(room.control_socket.token.encode() + b"\nwaited\n")
    old = resource.getrlimit(resource.RLIMIT_NOFILE)
    taken = [os.open(os.devnull, os.O_RDONLY)]
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (taken[0] + 1, old[1]))
        began = time.process_time()
        for _ in range(10):
            room.loop.turn(0.05)
        assert time.process_time() - began < 0.3, "it doesn't spin"
        assert (len(room.warned), room.said) == (1, [])
        assert "Too many open files" in room.warned[0]
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, old)
        os.close(taken[0])
    room.until(lambda: room.said == ["waited"])
    sock.close()


def test_without_a_descriptor_strangers_make_room(room: Room) -> None:
    resource = pytest.importorskip("resource")
    stranger = room.knock()
    room.turn(2)
    sock = room.knock()
    sock.sendall(room.control_socket.token.encode() + b"\nhere\n")
    old = resource.getrlimit(resource.RLIMIT_NOFILE)
    highest = max(map(int, os.listdir("/proc/self/fd")))
    taken = []
    while True:
        taken.append(os.open(os.devnull, os.O_RDONLY))
        if taken[-1] > highest:
            os.close(taken.pop())
            break
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (highest + 1, old[1]))
        room.until(lambda: room.said == ["here"])
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, old)
        for fd in taken:
            os.close(fd)
    assert stranger.recv(1) == b""
    stranger.close()
    sock.close()


@pytest.mark.parametrize("error", [ValueError, UnicodeEncodeError, RecursionError, IndexError, OSError, MemoryError])
def test_an_exception_ends_one_connection_and_nothing_else(room: Room, error: type[Exception]) -> None:
    def fail(words: list[str], line: str) -> None:
        raise error(*(("utf-8", "\ud800", 0, 1, "why") if error is UnicodeEncodeError else ("why",)))

    with room.enter() as good:
        bad = [room.enter(), room.enter()]
        room.until(lambda: len(room.connections) == 3)
        for connection in room.connections[1:]:
            connection.on_line = fail
        for sock in bad:
            sock.sendall(b"a\nb\n")
        room.until(lambda: room.gone == 2)
        assert [sock.recv(1) for sock in bad] == [b"", b""]
        good.sendall(b"still here\n")
        room.until(lambda: room.said == ["still here"])
        assert len(room.warned) == 1 and "why" in room.warned[0]
        for sock in bad:
            sock.close()


@pytest.mark.parametrize("when", ["before the token", "with the token", "after it"])
def test_descriptors_that_nobody_asked_for_are_closed(room: Room, when: str) -> None:
    token = room.control_socket.token.encode() + b"\n"
    read, write = os.pipe()
    with room.knock() as sock:
        before, after = {"before the token": (b"", token), "with the token": (b"", token), "after it": (token, b"")}[
            when
        ]
        sock.sendall(before)
        room.turn(2)
        held = descriptors()
        first = after[:1] if when == "before the token" else after or b"x\n"
        socket.send_fds(sock, [first], [write] * 100)
        sock.sendall(after[len(first) :] + b"done\n")
        room.until(lambda: "done" in room.said)
        assert descriptors() == held
        os.close(write)
        os.set_blocking(read, False)
        assert os.read(read, 1) == b"", "nobody has the other end"
    os.close(read)
