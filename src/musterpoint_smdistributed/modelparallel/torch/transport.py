"""Messages between the ranks of one pipeline, over one TCP connection for each two of them.

Every rank listens at one port. Who connects must prove to know the job's token, which the ranks exchange over
torch.distributed before; so must who accepts. Who waits for messages reads them (:class:`Inbox`); for each connection
there is a thread that reads large ones while this rank does something else.
"""

from __future__ import annotations

import contextlib
import os
import queue
import secrets
import select
import socket
import struct
import threading
import time
import weakref
from typing import Any, Callable, Generator, NamedTuple, Sequence

import torch

from ...shared.admission import Admission, proof, proves, receive
from .connection import Connection, waiter


# A rank that computes doesn't wake for small messages either; it looks when it has time. On busy cores each thread
# that has to wake costs more than what it does. Large messages are read by threads meanwhile, so that senders can go
# on.
class Inbox:
    """Messages in the order in which they came. Any thread may put one; one at a time takes them out."""

    def __init__(self) -> None:
        self._items: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._reader: Transport | None = None
        self._is_waiting = False
        self._has_looked = False  # the last time something was asked for, and nothing had come

    def reads(self, reader: Transport) -> None:
        """From now on."""
        self._reader = reader

    def put(self, message: Any) -> None:
        self._items.put(message)
        if self._is_waiting and self._reader is not None:
            self._reader.wake()

    def empty(self) -> bool:
        self._look()
        return self._items.empty()

    def get_nowait(self) -> Any:
        """The next message. Raises queue.Empty."""
        self._has_looked = False
        if self._items.empty():
            self._look()
            self._has_looked = True
        return self._items.get_nowait()

    def get(self, timeout: float | None = None) -> Any:
        """The next message. Raises queue.Empty after so many seconds."""
        if self._reader is None or not self._reader.waits:
            return self._items.get(timeout=timeout)
        until = None if timeout is None else time.monotonic() + timeout
        while True:
            try:
                return self._items.get_nowait() if self._has_looked else self.get_nowait()
            except queue.Empty:
                left = None if until is None else until - time.monotonic()
                if left is not None and left <= 0:
                    raise
            self._is_waiting = True
            try:
                if self._items.empty():  # what is put from now on wakes
                    self._reader.wait(left)
            finally:
                self._is_waiting = False
                self._has_looked = False

    def _look(self) -> None:
        if self._reader is not None and self._reader.waits:
            self._reader.look()


NONCE = 32
PROOF = 32
HELLO = struct.Struct("<i")
HANDSHAKE_SECONDS = 20.0
LARGE = 1 << 16
"""So many bytes on a connection wake its thread, while this rank does something else."""


class Address(NamedTuple):
    """Where a rank listens."""

    host: str
    port: int


class Lost(NamedTuple):
    """The body of the last message of a connection: it has ended."""

    why: str


class Message(NamedTuple):
    """What arrived: from which rank, the object, its tensors."""

    sender: int
    body: Any
    tensors: list[torch.Tensor]


class Transport:
    """This rank's connections.

    waits: whether :meth:`look` and :meth:`wait` work here; else messages are delivered by threads alone.
    ``deliver`` is called by whatever thread reads a connection; ``device`` is where tensors go that were on a GPU.
    """

    def __init__(
        self, rank: int, deliver: Callable[[Message], None], host: str, device: torch.device | None = None
    ) -> None:
        self._rank, self._device = rank, device
        self._deliver = deliver
        self._token = b""
        self._addresses: dict[int, Address] = {}
        self._peers: frozenset[int] = frozenset()
        self._connections: dict[int, Connection] = {}
        self._lost: set[int] = set()
        self._arrived = threading.Condition()
        self._admission: Admission[int] | None = None
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._listener = socket.create_server((host, 0), family=family, backlog=128)
        self.address = Address(host, self._listener.getsockname()[1])
        self.waits = hasattr(select, "EPOLLEXCLUSIVE")  # elsewhere than Linux all threads would wake
        self._bell, self._ringer = os.pipe()
        os.set_blocking(self._bell, False)
        os.set_blocking(self._ringer, False)
        if self.waits:
            self._poll = select.epoll()
            self._poll.register(self._bell, select.EPOLLIN)
        _OPEN.add(self)

    def connect(self, token: bytes, addresses: dict[int, Address], peers: Sequence[int], seconds: float = 300) -> None:
        """Opens the connections to ``peers``, each of which calls this as well.

        ``addresses``: of every rank that may ever send something to this one. Raises OSError where a peer can't be
        reached or doesn't know the token, and TimeoutError where one hasn't connected in time.
        """
        self._token, self._addresses, self._peers = token, addresses, frozenset(peers)
        # strangers get no thread, and little time: whoever reaches the port may connect as often as it likes
        ranks = frozenset(addresses)
        admission = self._admission = Admission(
            self._listener, lambda caller: _check(caller, token, ranks), HANDSHAKE_SECONDS
        )
        threading.Thread(target=self._accept, args=(admission,), name="smp accept", daemon=True).start()
        for peer in peers:
            if peer < self._rank:  # the others connect to this rank
                self._add(peer, _dial(self._rank, addresses[peer], token, seconds))
        with self._arrived:
            if not self._arrived.wait_for(lambda: set(peers) <= set(self._connections), seconds):
                missing = sorted(set(peers) - set(self._connections))
                raise TimeoutError(
                    f"rank {self._rank}: ranks {missing} haven't connected to {self.address.host}:"
                    f"{self.address.port} for {seconds:.0f} s"
                )

    def send(self, to: int, body: Any, tensors: Sequence[torch.Tensor] = ()) -> None:
        """Returns when the message is on its way; the tensors may be changed then."""
        self._connections[to].send(body, tensors)

    def tell(self, to: int, body: Any, seconds: float = 2) -> None:
        """Sends one message to any rank of ``addresses``, over a connection of its own if need be. Never raises."""
        with contextlib.suppress(OSError):  # it has ended, or will hear of it from another rank
            if to in self._connections:
                self._connections[to].send(body, ())
                return
            connection = Connection(_dial(self._rank, self._addresses[to], self._token, seconds), None)
            connection.send(body, ())
            connection.close()

    def look(self) -> None:
        """Delivers what has come from the peers."""
        for peer, connection in list(self._connections.items()):
            self._read(peer, connection, waits=False)

    def wait(self, seconds: float | None) -> None:
        """Waits until something comes from a peer, and delivers it; not longer than so many seconds, or until
        :meth:`wake`."""
        connections = dict(self._connections)
        try:
            for connection in connections.values():
                connection.wakes_at(1)
            ready = {descriptor for descriptor, _ in self._poll.poll(seconds)}
        finally:
            for connection in connections.values():
                connection.wakes_at(LARGE)
        if self._bell in ready:
            with contextlib.suppress(BlockingIOError):
                os.read(self._bell, 4096)
        for peer, connection in connections.items():
            if connection.socket.fileno() in ready:
                self._read(peer, connection)

    def wake(self) -> None:
        """Who waits goes on."""
        with contextlib.suppress(OSError):  # it has been rung often enough, or is closed
            os.write(self._ringer, b"\0")

    def close(self) -> None:
        if self._admission is not None:
            self._admission.close()
        self._listener.close()
        for connection in self._connections.values():
            connection.close()

    def _accept(self, admission: Admission[int]) -> None:
        while True:
            try:
                caller, peer = admission.next()
            except OSError:
                admission.end()
                return  # closed
            self._add(peer, caller)

    def _add(self, peer: int, connected: socket.socket) -> None:
        connection = Connection(connected, self._device)
        with self._arrived:
            if peer in self._peers and peer not in self._connections:  # else it only tells one thing
                self._connections[peer] = connection
                if self.waits:
                    connection.wakes_at(LARGE)
                    # before the thread does the same, and so it is this one that wakes if both wait
                    self._poll.register(connected, select.EPOLLIN | select.EPOLLEXCLUSIVE)
            self._arrived.notify_all()
        threading.Thread(target=self._serve, args=(peer, connection), name=f"smp from {peer}", daemon=True).start()

    def _serve(self, peer: int, connection: Connection) -> None:
        """Reads what comes while nobody waits for it."""
        try:
            wait = waiter(connection.socket)
        except (OSError, ValueError):
            return  # closed meanwhile
        while self._read(peer, connection):
            wait()

    def _read(self, peer: int, connection: Connection, waits: bool = True) -> bool:
        """Delivers what has come; whether the connection goes on."""
        if peer in self._lost and self._connections.get(peer) is connection:
            return False
        try:
            connection.read(lambda body, tensors: self._deliver(Message(peer, body, tensors)), waits)
        except BaseException as error:  # whatever ends this ends the connection, or the peer waits for ever
            self._end(peer, connection, error)
            return False
        return True

    def _end(self, peer: int, connection: Connection, error: BaseException) -> None:
        if self._connections.get(peer) is not connection:
            connection.close()  # it was for one message only
            return
        with self._arrived:
            first = peer not in self._lost
            self._lost.add(peer)
        if not first:
            return
        if self.waits:
            with contextlib.suppress(OSError, ValueError):  # closed on this side
                self._poll.unregister(connection.socket)  # it would wake who waits for ever
        self._deliver(Message(peer, Lost(str(error) or "the connection was closed"), []))


def own_host(towards: str) -> str:
    """This host's address on its way to another host; the loopback's if ``towards`` is this host itself."""
    family, kind, _, _, target = socket.getaddrinfo(towards, 9, type=socket.SOCK_DGRAM)[0]
    with socket.socket(family, kind) as probe:
        probe.connect(target)
        return str(probe.getsockname()[0])


def new_token() -> bytes:
    return secrets.token_bytes(32)


def _dial(rank: int, address: Address, token: bytes, seconds: float) -> socket.socket:
    """Connects, proves to know the token, and has the other side prove it first."""
    connected = socket.create_connection(address, timeout=seconds)
    try:
        connected.settimeout(min(seconds, HANDSHAKE_SECONDS))
        mine = secrets.token_bytes(NONCE) + HELLO.pack(rank)
        connected.sendall(mine)
        theirs = receive(connected, NONCE)
        if not proves(receive(connected, PROOF), token, b"accept", mine, theirs):
            raise OSError(f"who listens at {address.host}:{address.port} doesn't know this job's token")
        connected.sendall(proof(token, b"connect", mine, theirs))
    except EOFError:
        connected.close()
        raise OSError(f"{address.host}:{address.port} closed the connection: it expects another job's token") from None
    except OSError:
        connected.close()
        raise
    return connected


def _check(caller: socket.socket, token: bytes, ranks: frozenset[int]) -> Generator[int, bytes, int]:
    """The rank of who connected. Raises ValueError if it doesn't know the token, or is no rank."""
    theirs = yield NONCE + HELLO.size
    mine = secrets.token_bytes(NONCE)
    caller.send(mine + proof(token, b"accept", theirs, mine))
    given = yield PROOF
    (rank,) = HELLO.unpack(theirs[NONCE:])
    if not proves(given, token, b"connect", theirs, mine) or rank not in ranks:
        raise ValueError("it doesn't know the token")
    return int(rank)


_OPEN: weakref.WeakSet[Transport] = weakref.WeakSet()


def _forget() -> None:
    """In a forked child, such as a DataLoader's worker: it would keep the connections open when this rank has ended."""
    for transport in list(_OPEN):
        for connected in [transport._listener, *(each.socket for each in transport._connections.values())]:
            with contextlib.suppress(OSError):
                os.close(connected.detach())


os.register_at_fork(after_in_child=_forget)
