"""Calls to ports of other hosts: who listens, and what came of a call.

A call sends more than fits into one packet, so that a path that loses large packets is found, too.
"""

from __future__ import annotations

import errno
import os
import socket
import struct
from functools import partial
from typing import Iterable, Literal, NamedTuple, Sequence

from musterpoint.base.loop import READ, WRITE, Loop, Timer
from musterpoint.base.posix import fcntl
from musterpoint.core.fabric.devices import read_text
from musterpoint.core.rollcall.listener import listening

Result = Literal["ok", "silent", "refused", "unreachable", "stuck"]
"""``silent``: no answer. ``refused``: at once. ``unreachable``: there is no route. ``stuck``: it connected, and then
large packets were not acknowledged."""

TIMEOUT = 4.0
"""Seconds a call may take to connect: a first packet that is lost is sent again after 1 s, then after 2 more."""
DELIVERY = 5.0
"""Seconds until what was sent is acknowledged. A slow program on the other end doesn't count: its kernel answers."""
_FILL = 48 * 1024
_TOKEN = 64
_MOST_OPEN = 4096
_OUTQ = 0x5411
"""SIOCOUTQ (Linux, tcp(7)): how many bytes are not acknowledged."""


CALL_ALL = 32
"""Up to so many hosts every one calls every other; of more, each calls the leader and about twice log2 of them."""


def called_by(place: int, hosts: int) -> tuple[int, ...]:
    """The places of the hosts that the host at ``place`` calls; every host is called by several."""
    if hosts <= CALL_ALL:
        return tuple(other for other in range(hosts) if other != place)
    found = {0}
    step = 1
    while step < hosts:
        found |= {(place + step) % hosts, (place - step) % hosts}
        step *= 2
    return tuple(sorted(found - {place}))


class Call(NamedTuple):
    """What became of a call from a host to a port of another. ``place``: of the port among that host's."""

    caller: str
    called: str
    port: int
    result: Result
    place: int = 0


class Endpoint(NamedTuple):
    """Where to call: a host's name, its address and one of its ports; ``place``: of the port among that host's."""

    host: str
    address: str
    port: int
    place: int = 0

    def call(self, caller: str, result: Result) -> Call:
        """What became of a call from ``caller``."""
        return Call(caller, self.host, self.port, result, self.place)


class Listeners:
    """Listens on ports of this host; every call gets an answer once all that it sends is here.

    ``token``: what callers begin with; others are hung up on.
    """

    def __init__(self, loop: Loop, token: str, ports: Iterable[int]) -> None:
        self._loop = loop
        self._token = token.encode()[:_TOKEN].ljust(_TOKEN)
        self._sockets: list[socket.socket] = []
        self._calls: dict[int, tuple[socket.socket, bytearray]] = {}
        self.ports: tuple[int, ...] = ()
        self.taken: tuple[int, ...] = ()
        for port in ports:
            try:
                listener = listening(port)
            except OSError:
                self.taken += (port,)
                continue
            self._sockets.append(listener)
            self.ports += (listener.getsockname()[1],)
            loop.watch(listener.fileno(), READ, partial(self._accept, listener))

    def _accept(self, listener: socket.socket, _ready: int) -> None:
        try:
            call, _ = listener.accept()
        except OSError:
            return
        if len(self._calls) >= _MOST_OPEN:
            call.close()
            return
        call.setblocking(False)
        self._calls[call.fileno()] = (call, bytearray())
        self._loop.watch(call.fileno(), READ, partial(self._read, call.fileno()))

    def _read(self, fd: int, _ready: int) -> None:
        call, got = self._calls[fd]
        try:
            piece = call.recv(65536)
        except BlockingIOError:
            return
        except OSError:
            piece = b""
        got += piece
        stranger = not self._token.startswith(bytes(got[:_TOKEN])[:_TOKEN])
        if not piece or stranger or len(got) > _TOKEN + _FILL:
            self._hang_up(fd)
        elif len(got) == _TOKEN + _FILL:
            try:
                call.send(b"ok")  # the caller hangs up first, so that this port isn't left in TIME_WAIT
            except OSError:
                self._hang_up(fd)

    def _hang_up(self, fd: int) -> None:
        call, _ = self._calls.pop(fd)
        self._loop.forget(fd)
        call.close()

    def close(self) -> None:
        for fd in list(self._calls):
            self._hang_up(fd)
        for listener in self._sockets:
            self._loop.forget(listener.fileno())
            listener.close()
        self._sockets = []


def ephemeral_ports(root: str = "/") -> tuple[int, ...]:
    """Three ports across the range that the system gives to sockets: frameworks listen on such ones on every host."""
    words = read_text(os.path.join(root, "proc/sys/net/ipv4/ip_local_port_range")).split()
    low, high = (int(words[0]), int(words[1])) if len(words) == 2 and all(map(str.isdecimal, words)) else (32768, 60999)
    span = max(1, (high - low) // 8)
    draw = int.from_bytes(os.urandom(4), "big")
    return tuple(start + draw % span for start in (low, (low + high) // 2, high - span))


class Calls:
    """Calls all ``endpoints`` at once; :attr:`done` is set with the results when the last one is over."""

    def __init__(self, loop: Loop, me: str, token: str, endpoints: Sequence[Endpoint]) -> None:
        self._loop = loop
        self._me = me
        self._data = token.encode()[:_TOKEN].ljust(_TOKEN) + bytes(_FILL)
        self._open: dict[int, tuple[socket.socket, Endpoint, Timer]] = {}
        self._results: list[Call] = []
        self._waiting = list(endpoints)
        self._total = len(endpoints)
        self._start()

    @property
    def done(self) -> tuple[Call, ...] | None:
        return tuple(self._results) if len(self._results) == self._total else None

    def _start(self) -> None:
        while self._waiting and len(self._open) < _MOST_OPEN:
            self._call(self._waiting.pop())

    def _call(self, endpoint: Endpoint) -> None:
        family = socket.AF_INET6 if ":" in endpoint.address else socket.AF_INET
        sock = socket.socket(family, socket.SOCK_STREAM)
        sock.setblocking(False)
        code = sock.connect_ex((endpoint.address, endpoint.port))
        if code not in (0, errno.EINPROGRESS):
            sock.close()
            self._results.append(endpoint.call(self._me, _of_errno(code)))
            return
        fd = sock.fileno()
        timer = self._loop.call_later(TIMEOUT, lambda: self._end(fd, "silent"))
        self._open[fd] = (sock, endpoint, timer)
        self._loop.watch(fd, WRITE, lambda _ready: self._connected(fd))

    def _connected(self, fd: int) -> None:
        sock, endpoint, timer = self._open[fd]
        code = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if code:
            self._end(fd, _of_errno(code))
            return
        timer.cancel()
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4 * len(self._data))
        left = memoryview(self._data)

        def send(_ready: int) -> None:
            nonlocal left
            try:
                left = left[sock.send(left) :]
            except BlockingIOError:
                return
            except OSError:
                self._end(fd, "refused")
                return
            if not left:
                self._loop.watch(fd, READ, lambda _ready: self._answered(fd))

        late = self._loop.call_later(DELIVERY, lambda: self._end(fd, "stuck" if _unacknowledged(sock) else "ok"))
        self._open[fd] = (sock, endpoint, late)
        self._loop.watch(fd, WRITE, send)
        send(WRITE)

    def _answered(self, fd: int) -> None:
        sock, _, _ = self._open[fd]
        try:
            said = sock.recv(16)
        except BlockingIOError:
            return
        except OSError:
            said = b""
        self._end(fd, "ok" if said == b"ok" else "refused")

    def _end(self, fd: int, result: Result) -> None:
        sock, endpoint, timer = self._open.pop(fd)
        timer.cancel()
        self._loop.forget(fd)
        sock.close()
        self._results.append(endpoint.call(self._me, result))
        self._start()


def _unacknowledged(sock: socket.socket) -> int:
    """Bytes that the other end's kernel has not acknowledged; 0 where this system doesn't tell."""
    try:
        return int(struct.unpack("i", fcntl.ioctl(sock.fileno(), _OUTQ, b"\0\0\0\0"))[0])
    except (ImportError, OSError):
        return 0


def _of_errno(code: int) -> Result:
    if code in (errno.ECONNREFUSED, errno.ECONNRESET):
        return "refused"
    return "silent" if code == errno.ETIMEDOUT else "unreachable"
