"""The key-value store in which Horovod's Gloo ranks find each other: ``python rendezvous.py PORT ADDRESS``.

Run as a script of its own on the leader, never imported by musterpoint. It speaks what ``HTTPStore`` in Horovod's core
and ``horovod.runner.http`` speak to Horovod's own server (0.28.1): ``PUT /scope/key`` stores a body, ``GET`` returns it
(404 until it is there), ``DELETE`` says that a rank has found its peers. One thread and one poll serve every rank.
"""

import errno
import resource
import select
import socket
import sys
import time
from typing import NamedTuple

HOLD_SECONDS = 1.0
"""How long a GET for a rank's addresses waits for them. Told 404 at once, each rank would ask 90 times a second."""
IDLE_SECONDS = 30.0
MOST_CONNECTIONS = 4096
LONGEST_HEAD = 16 << 10
LARGEST_VALUE = 4 << 20
LARGEST_STORE = 512 << 20
"""What is stored and what is being received. A rank stores 140 bytes for every other one: 1,500 ranks fit."""

Name = tuple[str, str]
"""Scope and key."""


class Refused(Exception):
    """``status`` is what the client is told before the connection is closed."""

    def __init__(self, status: str) -> None:
        super().__init__(status)
        self.status = status


class Request(NamedTuple):
    """A whole request; ``size`` bytes of what was received are its own."""

    method: str
    path: str
    body: bytes
    size: int


def parse(received: bytes) -> Request | None:
    """The first request in ``received``; None where it isn't whole yet."""
    end = received.find(b"\r\n\r\n")
    if max(end, len(received) if end < 0 else 0) > LONGEST_HEAD:
        raise Refused("431 Request Header Fields Too Large")
    if end < 0:
        return None
    first, *fields = received[:end].decode("latin-1").split("\r\n")
    words = first.split(" ")
    if len(words) != 3 or not words[2].startswith("HTTP/1."):
        raise Refused("400 Bad Request")
    length = _length(fields)
    size = end + 4 + length
    return Request(words[0], words[1], received[end + 4 : size], size) if len(received) >= size else None


def _length(fields: list[str]) -> int:
    """The body's, from the header fields."""
    length = 0
    for field in fields:
        name, _, value = field.partition(":")
        if name.lower() == "transfer-encoding":
            raise Refused("501 Not Implemented")
        if name.lower() == "content-length":
            value = value.strip()
            if not (value.isascii() and value.isdecimal()):
                raise Refused("400 Bad Request")
            if len(value) > 12 or int(value) > LARGEST_VALUE:
                raise Refused("413 Content Too Large")
            length = int(value)
    return length


def reply(status: str, body: bytes = b"") -> bytes:
    return f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body


class Store:
    """Values by scope and key; ``size`` is about the bytes they take."""

    def __init__(self) -> None:
        self._scopes: dict[str, dict[str, bytes]] = {}
        self.size = 0

    def put(self, name: Name, value: bytes) -> None:
        scope, key = name
        self._remove(scope, key)
        self._scopes.setdefault(scope, {})[key] = value
        self.size += len(scope) + len(key) + len(value)

    def get(self, name: Name) -> bytes | None:
        return self._scopes.get(name[0], {}).get(name[1])

    def delete(self, name: Name) -> None:
        """The key is a rank that has met all others of the scope; by Gloo's barrier all others have met it, too."""
        scope, key = name
        self._remove(scope, key)
        self._remove(scope, f"rank_{key}")

    def _remove(self, scope: str, key: str) -> None:
        value = self._scopes.get(scope, {}).pop(key, None)
        if value is not None:
            self.size -= len(scope) + len(key) + len(value)
        if scope in self._scopes and not self._scopes[scope]:
            del self._scopes[scope]


class Connection:
    """One client: what it sent and isn't answered, what it was answered and hasn't read, what it waits for."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.fd = sock.fileno()
        self.received = b""
        self.unsent = b""
        self.closing = False
        self.wants: Name | None = None
        self.deadline = time.monotonic() + IDLE_SECONDS


class Server:
    """Listens on construction; ``turn`` serves what is there, or waits for it. ``most`` is how many may connect.

    Raises:
        OSError: the port is taken.
    """

    def __init__(self, port: int, address: str, most: int = MOST_CONNECTIONS) -> None:
        self._listener = listen(port, address)
        self.address: tuple[str, int] = self._listener.getsockname()
        self._most = most
        self._poll = select.poll()
        self._poll.register(self._listener, select.POLLIN)
        self._connections: dict[int, Connection] = {}
        self._waiting: dict[Name, set[int]] = {}
        self._pending = 0
        self.store = Store()

    def turn(self) -> None:
        """Waits for something to happen, and sees to it."""
        soonest = min((connection.deadline for connection in self._connections.values()), default=None)
        patience = None if soonest is None else max(0.0, soonest - time.monotonic()) * 1000 + 1
        for fd, events in self._poll.poll(patience):
            connection = self._connections.get(fd)
            if fd == self._listener.fileno():
                self._accept()
            elif connection is not None:
                self._serve(connection, events)
        self._expire(time.monotonic())

    def _accept(self) -> None:
        while True:
            try:
                sock, _peer = self._listener.accept()
            except OSError:  # no more of them, or gone again
                return
            if len(self._connections) >= self._most:
                sock.close()
                continue
            sock.setblocking(False)
            connection = Connection(sock)
            self._connections[connection.fd] = connection
            self._poll.register(sock, select.POLLIN)

    def _serve(self, connection: Connection, events: int) -> None:
        try:
            if events & ~select.POLLOUT:
                data = connection.sock.recv(1 << 16)
                self._pending += len(data)
                connection.received += data
                too_much = len(connection.received) > LONGEST_HEAD + LARGEST_VALUE
                if not data or too_much or self.store.size + self._pending > LARGEST_STORE:
                    self._drop(connection)
                    return
                if connection.wants is None:
                    connection.deadline = time.monotonic() + IDLE_SECONDS
            self._go_on(connection)
        except BlockingIOError:
            pass
        except OSError:
            self._drop(connection)

    def _go_on(self, connection: Connection) -> None:
        """Answers what is there, one after the other: the next when the client has read the one before."""
        self._send(connection)
        while not (connection.unsent or connection.closing or connection.wants):
            try:
                request = parse(connection.received)
                if request is None:
                    break
                connection.received = connection.received[request.size :]
                self._pending -= request.size
                self._answer(connection, request)
            except Refused as refusal:
                connection.closing = True
                connection.unsent = reply(refusal.status)
            self._send(connection)
        if connection.closing and not connection.unsent:
            self._drop(connection)
        elif connection.fd in self._connections:
            self._poll.modify(connection.fd, select.POLLOUT if connection.unsent else select.POLLIN)

    def _answer(self, connection: Connection, request: Request) -> None:
        parts = request.path.split("/")
        if len(parts) != 3 or parts[0]:
            raise Refused("400 Bad Request")
        name = (parts[1], parts[2])
        if request.method == "PUT":
            self.store.put(name, request.body)
            connection.unsent = reply("200 OK")
            for fd in list(self._waiting.get(name, ())):
                self._release(self._connections[fd], reply("200 OK", request.body))
        elif request.method == "DELETE":
            self.store.delete(name)
            connection.unsent = reply("200 OK")
        elif request.method == "GET":
            self._get(connection, name)
        else:
            raise Refused("501 Not Implemented")

    def _get(self, connection: Connection, name: Name) -> None:
        value = self.store.get(name)
        if value is not None:
            connection.unsent = reply("200 OK", value)
        elif name[1].isdecimal():
            connection.wants = name
            connection.deadline = time.monotonic() + HOLD_SECONDS
            self._waiting.setdefault(name, set()).add(connection.fd)
        else:  # Gloo asks once for such a key, rank_N, and goes on without it
            connection.unsent = reply("404 Not Found")

    def _release(self, connection: Connection, answer: bytes) -> None:
        """Ends a held request with ``answer``."""
        self._forget_wish(connection)
        connection.deadline = time.monotonic() + IDLE_SECONDS
        connection.unsent = answer
        # sent in its own turn, or one rank's PUT would wait for all the others
        self._poll.modify(connection.fd, select.POLLOUT)

    def _forget_wish(self, connection: Connection) -> None:
        wanted, connection.wants = connection.wants, None
        if wanted is not None:
            self._waiting[wanted].discard(connection.fd)
            if not self._waiting[wanted]:
                del self._waiting[wanted]

    def _send(self, connection: Connection) -> None:
        if connection.unsent:
            try:
                sent = connection.sock.send(connection.unsent)
            except BlockingIOError:
                sent = 0
            connection.unsent = connection.unsent[sent:]

    def _expire(self, now: float) -> None:
        for connection in [one for one in self._connections.values() if one.deadline <= now]:
            if connection.wants is not None:
                self._release(connection, reply("404 Not Found"))
            else:
                self._drop(connection)

    def _drop(self, connection: Connection) -> None:
        self._forget_wish(connection)
        if self._connections.pop(connection.fd, None) is not None:
            self._pending -= len(connection.received)
            self._poll.unregister(connection.fd)
            connection.sock.close()

    def close(self) -> None:
        for connection in list(self._connections.values()):
            self._drop(connection)
        self._listener.close()


def listen(port: int, address: str) -> socket.socket:
    """A listener on ``address`` alone; on every one where that isn't this host's own, but translated for it."""
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((address, port))
        except OSError as error:
            if error.errno != errno.EADDRNOTAVAIL:
                raise
            listener.bind(("", port))
        listener.listen(MOST_CONNECTIONS)
        listener.setblocking(False)
    except BaseException:
        listener.close()
        raise
    return listener


def room() -> int:
    """How many connections this process may have, after asking the system for as many as we want."""
    _soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MOST_CONNECTIONS + 16
    limit = wanted if hard == resource.RLIM_INFINITY else min(hard, wanted)
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
    return limit - 16


def main() -> None:
    port, address = int(sys.argv[1]), sys.argv[2]
    try:
        server = Server(port, address, room())
    except OSError as error:
        sys.exit(f"Horovod's rendezvous server can't listen on {address}:{port}: {error.strerror}")
    while True:
        server.turn()


if __name__ == "__main__":
    main()
