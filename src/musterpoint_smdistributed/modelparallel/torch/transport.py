"""Messages between the ranks of one pipeline, over one TCP connection for each two of them.

A message is a Python object and tensors. Tensors go from memory to memory without pickle; those of a GPU go over the
CPU's memory, and arrive on the receiver's GPU. Every rank listens at one port. Who connects must prove to know the
job's token, which the ranks exchange over torch.distributed before; so must who accepts.
"""

from __future__ import annotations

import ctypes
import os
import pickle
import secrets
import socket
import struct
import threading
import weakref
from typing import Any, Callable, Generator, NamedTuple, Sequence

import torch

from ...shared.admission import Admission, proof, proves

NONCE = 32
PROOF = 32
HELLO = struct.Struct("<i")
HEADER = struct.Struct("<Q")
HANDSHAKE_SECONDS = 20.0
LARGEST_AT_ONCE = 64
"""Buffers that one system call takes; the kernel's limit is 1024."""


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


class _Layout(NamedTuple):
    """How a tensor lies in memory."""

    dtype: torch.dtype
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    on_gpu: bool


class Transport:
    """This rank's connections.

    Args:
        rank: this rank, in whatever numbering the peers have in :meth:`connect`.
        deliver: takes each message; called by the thread that reads the connection.
        host: the address of this host at which its peers reach it.
        device: where tensors go that were on the sender's GPU.
    """

    def __init__(
        self, rank: int, deliver: Callable[[Message], None], host: str, device: torch.device | None = None
    ) -> None:
        self._rank, self._device = rank, device
        self._deliver = deliver
        self._token = b""
        self._addresses: dict[int, Address] = {}
        self._peers: frozenset[int] = frozenset()
        self._connections: dict[int, _Connection] = {}
        self._arrived = threading.Condition()
        self._admission: Admission[int] | None = None
        self._listener = socket.create_server((host, 0), family=_family(host), backlog=128)
        self.address = Address(host, self._listener.getsockname()[1])
        _OPEN.add(self)

    def connect(self, token: bytes, addresses: dict[int, Address], peers: Sequence[int], seconds: float = 300) -> None:
        """Opens the connections to ``peers``, each of which calls this as well.

        Args:
            token: the job's, the same on all ranks.
            addresses: of every rank that may ever send something to this one.

        Raises:
            OSError: a peer can't be reached, or doesn't know the token.
            TimeoutError: a peer hasn't connected in time.
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
        """Returns when the message is on its way; the tensors may be changed then.

        Raises:
            OSError: the connection is broken.
        """
        self._connections[to].send(body, tensors)

    def tell(self, to: int, body: Any, seconds: float = 2) -> None:
        """Sends one message to any rank of ``addresses``, over a connection of its own if need be. Never raises."""
        try:
            if to in self._connections:
                self._connections[to].send(body, ())
                return
            connection = _Connection(_dial(self._rank, self._addresses[to], self._token, seconds), None)
            connection.send(body, ())
            connection.close()
        except OSError:
            pass  # it has ended, or will hear of it from another rank

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
        connection = _Connection(connected, self._device)
        with self._arrived:
            if peer in self._peers:  # else it only tells one thing
                self._connections.setdefault(peer, connection)
            self._arrived.notify_all()
        threading.Thread(target=self._read, args=(peer, connection), name=f"smp from {peer}", daemon=True).start()

    def _read(self, peer: int, connection: _Connection) -> None:
        try:
            while True:
                self._deliver(Message(peer, *connection.receive()))
        except BaseException as error:  # whatever ends this thread ends the connection, or the peer waits for ever
            if self._connections.get(peer) is connection:
                self._deliver(Message(peer, Lost(str(error) or "the connection was closed"), []))
            else:
                connection.close()  # it was for one message only


class _Connection:
    """One end of a stream of messages."""

    def __init__(self, connected: socket.socket, device: torch.device | None) -> None:
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connected.settimeout(None)
        self._socket, self._device = connected, device
        self._sending = threading.Lock()

    def send(self, body: Any, tensors: Sequence[torch.Tensor]) -> None:
        plain = [_plain(tensor) for tensor in tensors]
        layouts = [layout for layout, _ in plain]
        head = pickle.dumps((body, layouts), protocol=pickle.HIGHEST_PROTOCOL)
        buffers = [memoryview(HEADER.pack(len(head)) + head)]
        buffers += [_memory(tensor) for _, tensor in plain if tensor.numel()]
        with self._sending:
            _send_all(self._socket, buffers)

    def receive(self) -> tuple[Any, list[torch.Tensor]]:
        """The next message. Raises EOFError at the end of the stream."""
        (length,) = HEADER.unpack(_receive(self._socket, HEADER.size))
        body, layouts = pickle.loads(_receive(self._socket, length))
        tensors = []
        for layout in layouts:
            tensor = torch.empty_strided(layout.shape, layout.stride, dtype=layout.dtype)
            if tensor.numel():
                _receive_into(self._socket, _memory(tensor))
            tensors.append(tensor.to(self._device) if layout.on_gpu and self._device is not None else tensor)
        return body, tensors

    def close(self) -> None:
        try:
            self._socket.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass  # the peer was first
        self._socket.close()


def own_host(towards: str) -> str:
    """This host's address on its way to another host; the loopback's if ``towards`` is this host itself.

    Raises:
        OSError: the name can't be resolved, or there is no way.
    """
    family, kind, _, _, target = socket.getaddrinfo(towards, 9, type=socket.SOCK_DGRAM)[0]
    with socket.socket(family, kind) as probe:
        probe.connect(target)
        return str(probe.getsockname()[0])


def new_token() -> bytes:
    return secrets.token_bytes(32)


def _plain(tensor: torch.Tensor) -> tuple[_Layout, torch.Tensor]:
    """The tensor so that its elements are one piece of memory, which is in the order that its strides say."""
    tensor = tensor.detach().resolve_conj().resolve_neg()
    strides, sizes = tensor.stride(), tuple(tensor.shape)
    order = sorted(range(tensor.dim()), key=lambda dim: (-strides[dim], -sizes[dim]))
    if not tensor.permute(order).is_contiguous():
        tensor = tensor.contiguous()
    layout = _Layout(tensor.dtype, tuple(tensor.shape), tuple(tensor.stride()), tensor.is_cuda)
    return layout, tensor.cpu()


def _memory(tensor: torch.Tensor) -> memoryview:
    """The tensor's bytes, for as long as the tensor is held."""
    size = tensor.numel() * tensor.element_size()
    return memoryview((ctypes.c_char * size).from_address(tensor.data_ptr())).cast("B")


def _send_all(connected: socket.socket, buffers: list[memoryview]) -> None:
    while buffers:
        sent = connected.sendmsg(buffers[:LARGEST_AT_ONCE])
        while buffers and sent >= len(buffers[0]):
            sent -= len(buffers[0])
            del buffers[0]
        if buffers:
            buffers[0] = buffers[0][sent:]


def _receive_into(connected: socket.socket, target: memoryview) -> None:
    while target:
        count = connected.recv_into(target)
        if not count:
            raise EOFError
        target = target[count:]


def _receive(connected: socket.socket, size: int) -> bytearray:
    data = bytearray(size)
    _receive_into(connected, memoryview(data))
    return data


def _dial(rank: int, address: Address, token: bytes, seconds: float) -> socket.socket:
    """Connects, proves to know the token, and has the other side prove it first."""
    connected = socket.create_connection(address, timeout=seconds)
    try:
        connected.settimeout(min(seconds, HANDSHAKE_SECONDS))
        mine = secrets.token_bytes(NONCE) + HELLO.pack(rank)
        connected.sendall(mine)
        theirs = bytes(_receive(connected, NONCE))
        if not proves(bytes(_receive(connected, PROOF)), token, b"accept", mine, theirs):
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


def _family(host: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in host else socket.AF_INET


_OPEN: weakref.WeakSet[Transport] = weakref.WeakSet()


def _forget() -> None:
    """In a forked child, such as a DataLoader's worker: it would keep the connections open when this rank has ended."""
    for transport in list(_OPEN):
        for connected in [transport._listener, *(each._socket for each in transport._connections.values())]:
            try:
                os.close(connected.detach())
            except OSError:
                pass


os.register_at_fork(after_in_child=_forget)
