"""The control socket: lines in, lines and descriptors out, over a real socket; what is read, and what that may cost."""

from __future__ import annotations

import contextlib
import os
import socket
import stat
import time
from pathlib import Path
from typing import Callable, Iterator

import pytest

from musterpoint.base.loop import Loop
from musterpoint.core.processes import control_socket as module
from musterpoint.core.processes.control_socket import (
    LONGEST_LINE,
    MOST_ACCEPTED,
    MOST_UNIDENTIFIED,
    Connection,
    ControlSocket,
    address_of,
)
from musterpoint.core.processes.private_folder import private_folder

from ...fixtures import closing_fixture
from ...turning import turn_until


class Listening:
    """A control socket, the lines its connections send, and how many have ended."""

    def __init__(self) -> None:
        self.loop = Loop()
        self.connections: list[Connection] = []
        self.said: list[str] = []
        self.ends = 0
        self.warned: list[str] = []
        self.control_socket = ControlSocket(self.loop, self.on_connection, self.warned.append)

    def on_connection(self, connection: Connection) -> None:
        self.connections.append(connection)
        connection.route_to(lambda words, line: self.said.append(line), self.ended)

    def ended(self) -> None:
        self.ends += 1

    def connect(self) -> socket.socket:
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        sock.settimeout(500)
        sock.connect(address_of(self.control_socket.address))
        return sock

    def identified(self) -> socket.socket:
        sock = self.connect()
        sock.sendall(self.control_socket.token.encode() + b"\n")
        self.until(lambda: bool(self.connections))
        return sock

    def until(self, done: Callable[[], bool]) -> None:
        turn_until(self.loop, done, self.said)

    def turn(self, rounds: int) -> None:
        for _ in range(rounds):
            self.loop.turn(0.2)

    def close(self) -> None:
        self.control_socket.close()
        self.loop.close()


listening = closing_fixture(Listening)


def test_lines_come_whole_however_they_travel(listening: Listening) -> None:
    with listening.identified() as sock:
        for piece in (b"rank 0 0", b" 1 77 0\nstar", b"ted 5\n\xff\n"):
            sock.sendall(piece)
            listening.turn(1)
        assert listening.said == ["rank 0 0 1 77 0", "started 5", "�"]
    listening.turn(1)
    assert listening.ends == 1


def test_descriptors_travel_beside_a_line(listening: Listening) -> None:
    read, write = os.pipe()
    with listening.identified() as sock:
        listening.connections[0].send("go", (write,))
        data, descriptors, _flags, _address = socket.recv_fds(sock, 16, 4)
        assert data == b"go\n"
        os.write(descriptors[0], b"through")
        assert os.read(read, 16) == b"through"
        for fd in (read, write, *descriptors):
            os.close(fd)


def test_what_is_sent_to_a_connection_that_ended_is_lost(listening: Listening) -> None:
    listening.identified().close()
    for _ in range(3):
        listening.connections[0].send("release")
    listening.turn(1)
    assert listening.ends == 1


def test_a_connection_that_does_not_read_delays_nothing(listening: Listening, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SEND_TIMEOUT", 0.1)
    with listening.identified():
        listening.connections[0].send("x" * (8 << 20))
        listening.until(lambda: listening.ends == 1)


def test_a_connection_that_is_ready_by_mistake_is_not_waited_for(listening: Listening) -> None:
    with listening.identified() as sock:
        listening.connections[0].read(1)
        listening.connections[0].send("hello")
        listening.connections[0].read(1)
        assert sock.recv(16) == b"hello\n"
    listening.until(lambda: listening.ends == 1)


def test_a_line_without_an_end_is_not_collected_for_ever(listening: Listening) -> None:
    with listening.identified() as sock:
        sent = 0
        sock.setblocking(False)
        while not listening.ends:
            try:
                sent += sock.send(b"x" * 65536)
            except BlockingIOError:
                pass
            except (BrokenPipeError, ConnectionResetError):
                break
            listening.turn(1)
        assert sent <= LONGEST_LINE + (1 << 20)
    assert listening.said == []


def test_the_address_is_nobodys_afterwards() -> None:
    listening = Listening()
    listening.close()
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock, pytest.raises(OSError):
        sock.connect(address_of(listening.control_socket.address))


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


@contextlib.contextmanager
def at_most(descriptors: int) -> Iterator[None]:
    resource = pytest.importorskip("resource")
    old = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (descriptors, old[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, old)


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
def test_nothing_is_read_without_the_token(listening: Listening, said: str) -> None:
    token = listening.control_socket.token.encode()
    with listening.connect() as sock, listening.identified() as other:
        sock.sendall(TOKENLESS[said].replace(b"TOKEN", token).replace(b"token", token.upper()))
        sock.shutdown(socket.SHUT_WR)
        other.sendall(b"heard\n")
        listening.until(lambda: listening.said == ["heard"])
        sock.setblocking(False)
        listening.turn(3)
        try:
            assert sock.recv(1) == b""
        except ConnectionResetError:
            pass  # what it said was never read
    assert len(listening.connections) == 1
    assert len(listening.warned) == (0 if said in ("nothing", "a token without an end") else 1)
    assert listening.control_socket.token not in "".join(listening.warned)


@pytest.mark.parametrize("said", [b"\n", b"inner 1\n", b"rank 0 0 1 77 0\n"])
def test_a_line_that_is_no_token_is_an_answer(listening: Listening, said: bytes) -> None:
    """Such as that of a launcher of another version, which would wait for ours."""
    with listening.connect() as sock:
        sock.sendall(said)
        listening.until(lambda: len(listening.warned) == 1)
        sock.settimeout(500)
        assert sock.recv(1) == b""
    assert "of the same version" in listening.warned[0]


def test_the_token_may_come_in_pieces(listening: Listening) -> None:
    with listening.connect() as sock:
        for byte in listening.control_socket.token.encode() + b"\nhello\n":
            sock.sendall(bytes([byte]))
            listening.turn(1)
        listening.until(lambda: listening.said == ["hello"])


def test_unidentified_connections_cost_little_and_keep_nobody_out(listening: Listening) -> None:
    before = descriptors()
    others = [listening.connect() for _ in range(MOST_UNIDENTIFIED + 100)]
    mine = descriptors() - before
    with listening.identified() as sock:
        sock.sendall(b"heard\n")
        listening.until(lambda: listening.said == ["heard"])
        listening.turn(20)
        assert descriptors() - before - mine <= MOST_UNIDENTIFIED + 2
    for other in others:
        other.close()
    listening.until(lambda: descriptors() <= before)


def test_an_unidentified_connection_that_sends_nothing_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "IDENTIFY_TIMEOUT", 0.05)
    listening = Listening()
    with listening.identified() as sock, listening.connect() as first, listening.connect() as second:
        for other in (first, second):
            other.setblocking(False)
        ended: set[int] = set()

        def both_ended() -> bool:
            for other in (first, second):
                try:
                    if other.recv(1) == b"":
                        ended.add(other.fileno())
                except BlockingIOError:
                    pass
            return len(ended) == 2

        listening.until(both_ended)
        sock.sendall(b"still here\n")
        listening.until(lambda: listening.said == ["still here"])
    listening.close()


def test_many_connections_at_once_delay_nothing_else(listening: Listening) -> None:
    """What else is ready has its turn after a few, however many wait."""
    many = [listening.connect() for _ in range(500)]
    before = descriptors()
    read, write = os.pipe()
    seen: list[int] = []
    listening.loop.watch(read, 1, lambda ready: (seen.append(descriptors() - before), os.read(read, 1)))  # type: ignore[func-returns-value]
    os.write(write, b"x")
    listening.turn(1)
    assert seen and seen[0] <= MOST_ACCEPTED + 2
    for sock in many:
        sock.close()
    listening.loop.forget(read)
    os.close(read)
    os.close(write)


def test_without_a_descriptor_for_it_a_connection_waits(listening: Listening, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "ACCEPT_PAUSE", 0.05)
    sock = listening.connect()
    sock.sendall(listening.control_socket.token.encode() + b"\nwaited\n")
    taken = os.open(os.devnull, os.O_RDONLY)
    with at_most(taken + 1):
        began = time.process_time()
        for _ in range(10):
            listening.loop.turn(0.05)
        assert time.process_time() - began < 0.3, "it doesn't spin"
        assert (len(listening.warned), listening.said) == (1, [])
        assert "Too many open files" in listening.warned[0]
    os.close(taken)
    listening.until(lambda: listening.said == ["waited"])
    sock.close()


def test_without_a_descriptor_unidentified_connections_give_theirs_up(listening: Listening) -> None:
    other = listening.connect()
    listening.turn(2)
    sock = listening.connect()
    sock.sendall(listening.control_socket.token.encode() + b"\nhere\n")
    highest = max(map(int, os.listdir("/proc/self/fd")))
    taken = []
    while True:
        taken.append(os.open(os.devnull, os.O_RDONLY))
        if taken[-1] > highest:
            os.close(taken.pop())
            break
    with at_most(highest + 1):
        listening.until(lambda: listening.said == ["here"])
    for fd in taken:
        os.close(fd)
    assert other.recv(1) == b""
    other.close()
    sock.close()


@pytest.mark.parametrize("error", [ValueError, UnicodeEncodeError, RecursionError, IndexError, OSError, MemoryError])
def test_an_exception_ends_one_connection_and_nothing_else(listening: Listening, error: type[Exception]) -> None:
    def fail(words: list[str], line: str) -> None:
        raise error(*(("utf-8", "\ud800", 0, 1, "why") if error is UnicodeEncodeError else ("why",)))

    with listening.identified() as good:
        bad = [listening.identified(), listening.identified()]
        listening.until(lambda: len(listening.connections) == 3)
        for connection in listening.connections[1:]:
            connection.route_to(fail)
        for sock in bad:
            sock.sendall(b"a\nb\n")
        listening.until(lambda: listening.ends == 2)
        assert [sock.recv(1) for sock in bad] == [b"", b""]
        good.sendall(b"still here\n")
        listening.until(lambda: listening.said == ["still here"])
        assert len(listening.warned) == 1 and "why" in listening.warned[0]
        for sock in bad:
            sock.close()


@pytest.mark.parametrize("when", ["before the token", "with the token", "after it"])
def test_descriptors_that_nobody_asked_for_are_closed(listening: Listening, when: str) -> None:
    token = listening.control_socket.token.encode() + b"\n"
    read, write = os.pipe()
    with listening.connect() as sock:
        before, after = (token, b"") if when == "after it" else (b"", token)
        sock.sendall(before)
        listening.turn(2)
        held = descriptors()
        first = after[:1] if when == "before the token" else after or b"x\n"
        socket.send_fds(sock, [first], [write] * 100)
        sock.sendall(after[len(first) :] + b"done\n")
        listening.until(lambda: "done" in listening.said)
        assert descriptors() <= held
        os.close(write)
        os.set_blocking(read, False)
        assert os.read(read, 1) == b"", "nobody has the other end"
    os.close(read)


def test_it_is_a_file_that_only_this_user_reaches(listening: Listening) -> None:
    path = Path(listening.control_socket.address)
    assert path.is_socket()
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    listening.control_socket.close()
    assert not path.exists()


def test_what_a_killed_job_has_left_is_removed_and_what_lives_is_not(listening: Listening) -> None:
    folder = Path(listening.control_socket.address).parent
    left = folder / "control-1-left.socket"
    left.with_suffix(".token").touch()  # first: tests beside this one sweep the folder by its sockets
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock:
        sock.bind(str(left))
    other = Listening()
    assert not left.exists()
    assert not left.with_suffix(".token").exists()
    listening.identified().close()
    other.close()


def test_without_a_directory_it_has_a_name_only(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(module, "private_folder", lambda: private_folder((str(tmp_path / "none"),)))
    listening = Listening()
    assert listening.control_socket.address.startswith("@")
    listening.identified().close()
    listening.close()


def test_a_token_that_is_known_already_is_used() -> None:
    loop = Loop()
    made = ControlSocket(loop, lambda connection: None, token="known")
    assert made.token == "known"
    made.close()
    loop.close()
