"""One non-blocking connection that carries frames, driven by the event loop."""

from __future__ import annotations

import select
import socket
import time
from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Callable, Iterable

from musterpoint.base.loop import READ, WRITE, Loop
from musterpoint.base.records import NamedTuple
from musterpoint.base.untrusted import printable
from musterpoint.core.channel import wire
from musterpoint.core.channel.connection_log import ConnectionLog
from musterpoint.core.channel.timeouts import Timeouts

if TYPE_CHECKING:  # only with a secret
    from musterpoint.core.channel.secret import Seal

_READ_SIZE = 65536
_MOST_QUEUED = 64 * 1024 * 1024
_AT_A_TURN = 32
_MOST_IGNORED = 256 * 1024
_LONGEST_WHY = 300
_JOINED = 4096


class Context(NamedTuple):
    """What every connection of a host shares.

    ``loop`` is the event loop of this process, ``timeouts`` has all durations, ``log`` prints and
    records what happens to connections. ``wall`` gives seconds since the epoch.
    """

    loop: Loop
    timeouts: Timeouts
    log: ConnectionLog
    wall: Callable[[], float] = time.time


def plain_address(address: str) -> str:
    """``address`` without the IPv4-mapped prefix of dual-stack sockets and without an IPv6 scope."""
    if address.startswith("::ffff:") and "." in address:
        return address[7:]
    return address.partition("%")[0]


class LinkOwner(NamedTuple):
    """The functions that a link calls.

    ``on_frame(link, payload)`` for each frame; an exception in it closes only this connection, and is logged.
    ``on_end(link, why, eof)`` once, when the connection ends; ``eof``: the other end closed or reset it; False
    where the network failed.
    """

    on_frame: Callable[[Link, bytes], None]
    on_end: Callable[[Link, str, bool], None]


class Link:
    """``peer``: the other end's address; ``limit``: most bytes of a frame; ``ended``: the connection is closed.

    Each turn of the loop handles only a few frames, so that one busy sender does not delay other connections.
    """

    __slots__ = (
        "_behind",
        "_frames",
        "_ignored",
        "_log",
        "_loop",
        "_owner",
        "_queue",
        "_queued",
        "_seal",
        "_sock",
        "ended",
        "peer",
    )

    def __init__(self, context: Context, sock: socket.socket, peer: str, limit: int, owner: LinkOwner) -> None:
        sock.setblocking(False)
        try:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        except OSError:
            pass  # it has ended already; the first read says so
        self._loop, self._log = context.loop, context.log
        self._sock = sock
        self._queue: deque[memoryview] | None = None
        self._queued = 0
        self._behind = False
        self._ignored: int | None = None
        self.peer = peer
        self._frames = wire.Frames(limit)
        self._owner = owner
        self._seal: Seal | None = None
        self.ended = False
        self._loop.watch(sock.fileno(), READ, self._ready)

    def hand_over(self, owner: LinkOwner) -> None:
        """From now on ``owner`` gets the frames and the end."""
        self._owner = owner

    def set_limit(self, limit: int) -> None:
        """From now on frames may have ``limit`` bytes."""
        self._frames.set_limit(limit)

    def use_seal(self, seal: Seal) -> None:
        """From now on each frame carries a MAC: ``seal`` adds it to what is sent and checks what comes."""
        self._seal = seal

    @property
    def sealed(self) -> bool:
        return self._seal is not None

    @property
    def busy(self) -> bool:
        """Bytes wait for the other end to read."""
        return self._queue is not None

    def send(self, frame: bytes) -> None:
        """Sends or queues one whole frame; drops it if the connection has ended."""
        if self.ended:
            return
        parts = [memoryview(frame)]
        if self._seal is not None:
            head = self._seal.close(frame)
            parts = [memoryview(head), parts[0][wire.HEAD :]]
            if len(frame) <= _JOINED:
                parts = [memoryview(head + frame[wire.HEAD :])]
        if self._queue is not None:
            self._put(parts)
            if self._queued > _MOST_QUEUED:
                self._end("it does not read what it is sent", False)
            return
        try:
            sent = self._sock.send(parts[0]) if len(parts) == 1 else self._sock.sendmsg(parts)
        except BlockingIOError:
            sent = 0
        except OSError as error:
            # reported in the next turn: the caller doesn't expect on_end here
            self._loop.call_later(0, partial(self._end, _why(error), _is_eof(error)))
            return
        if sent < sum(map(len, parts)):
            self._queue = deque()
            self._put(parts, sent)
            self._loop.watch(self._sock.fileno(), READ | WRITE, self._ready)

    def _put(self, parts: list[memoryview], sent: int = 0) -> None:
        assert self._queue is not None
        for part in parts:
            rest = part[sent:]
            sent = max(0, sent - len(part))
            if rest:
                self._queue.append(rest)
                self._queued += len(rest)

    def ignore(self) -> None:
        """From now on drops what is received, and closes after 256 KiB; ``on_end`` is still called."""
        self._ignored = 0

    def close(self) -> None:
        """Closes the connection; ``on_end`` is not called."""
        if not self.ended:
            self.ended = True
            self._loop.forget(self._sock.fileno())
            self._sock.close()

    def finish(self) -> None:
        """Closes the sending side: the other end reads what was sent, then an end of file."""
        if not self.ended:
            try:
                self._sock.shutdown(socket.SHUT_WR)
            except OSError:
                pass  # it has ended already; the next read says so

    def _ready(self, ready: int) -> None:
        if ready & WRITE and self._queue is not None:
            self._flush()
        if ready & READ and not self.ended:
            self._read()

    def _flush(self) -> None:
        queue = self._queue or deque()
        while queue:
            try:
                sent = self._sock.send(queue[0])
            except BlockingIOError:
                return
            except OSError as error:
                self._end(_why(error), _is_eof(error))
                return
            self._queued -= sent
            if sent < len(queue[0]):
                queue[0] = queue[0][sent:]
            else:
                queue.popleft()
        self._queue = None
        self._loop.watch(self._sock.fileno(), READ, self._ready)

    def _read(self) -> None:
        if self._behind:
            return  # frames received before are handled first
        try:
            data = self._sock.recv(_READ_SIZE)
        except BlockingIOError:
            return
        except OSError as error:
            self._end(_why(error), _is_eof(error))
            return
        if not data:
            self._end("it closed the connection", True)
        elif self._ignored is None:
            self._frames.feed(data)
            self._handle()
        else:
            self._ignored += len(data)
            if self._ignored > _MOST_IGNORED:
                self._end("it goes on sending", True)

    def _handle(self) -> None:
        self._behind = False
        for _ in range(_AT_A_TURN):
            if self.ended or self._ignored is not None:
                return
            try:
                payload = self._frames.next()
                if payload is None:
                    return
                self._owner.on_frame(self, payload if self._seal is None else self._seal.open(payload))
            except wire.WireError as error:
                self._log.protocol_error(self.peer, f"sent {error}")
                self._end(printable(f"it sent {error}", _LONGEST_WHY), True)
                return
            except Exception as error:
                self._log.internal_error(self.peer, error)
                self._end("what it sent could not be handled", True)
                return
        self._behind = True
        self._loop.call_later(0, self._handle)

    def _end(self, why: str, eof: bool) -> None:
        if self.ended:
            return
        self.close()
        try:
            self._owner.on_end(self, why, eof)
        except Exception as error:
            self._log.internal_error(self.peer, error)

    def detach(self) -> tuple[socket.socket, list[memoryview]]:
        """Takes the socket out of the loop; returns it with its unsent bytes (for :func:`say_bye`)."""
        self.ended = True
        self._loop.forget(self._sock.fileno())
        return self._sock, list(self._queue or ())


def _why(error: OSError) -> str:
    return (error.strerror or str(error)).lower()


def _is_eof(error: OSError) -> bool:
    return isinstance(error, (ConnectionResetError, BrokenPipeError, ConnectionAbortedError))


def say_bye(links: Iterable[Link], seconds: float) -> None:
    """Sends what is queued, closes the sending sides and waits for the other ends to close: ``seconds`` at most."""
    deadline = time.monotonic() + seconds
    socks = {}
    for link in links:
        if not link.ended:
            sock, queue = link.detach()
            if queue and not _send_rest(sock, queue, deadline):
                sock.close()
                continue
            try:
                sock.shutdown(socket.SHUT_WR)
            except OSError:
                sock.close()
                continue
            socks[sock.fileno()] = sock
    while socks and (left := deadline - time.monotonic()) > 0:
        for fd in _readable(list(socks), left):
            try:
                if socks[fd].recv(_READ_SIZE):
                    continue
            except BlockingIOError:
                continue
            except OSError:
                pass
            socks.pop(fd).close()
    for sock in socks.values():
        sock.close()


def _send_rest(sock: socket.socket, queue: list[memoryview], deadline: float) -> bool:
    try:
        for part in queue:
            sock.settimeout(max(0.001, deadline - time.monotonic()))
            sock.sendall(part)
        sock.setblocking(False)
    except OSError:
        return False
    return True


def _readable(fds: list[int], seconds: float) -> list[int]:
    if not hasattr(select, "poll"):
        return select.select(fds, [], [], seconds)[0]
    poller = select.poll()
    for fd in fds:
        poller.register(fd, select.POLLIN)
    return [fd for fd, _ in poller.poll(seconds * 1000)]
