"""The leader's one listening port: strangers come in, hosts with a hello or a session come out.

A stranger costs little and not for long: few bytes, a few seconds, and only so many at a time.
"""

from __future__ import annotations

import errno
import socket
import sys
from functools import partial
from typing import Any, Callable

from musterpoint.channel import wire
from musterpoint.channel.journal import Journal
from musterpoint.channel.link import Link, plain_address
from musterpoint.channel.secret import prove, same
from musterpoint.channel.timeouts import Timeouts
from musterpoint.errors import UsageError
from musterpoint.loop import READ, Loop
from musterpoint.rollcall.hello import ANOTHER_PROTOCOL, ANOTHER_SECRET, Hello, Resume, draw

_BACKLOG = 4096
_AT_ONCE = 64
_SPARE = 128
_FULL = {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM}


def listen(port: int, me: str) -> socket.socket:
    """A socket that listens on ``port``, for IPv6 and IPv4 where the system has both.

    Raises:
        UsageError: the port can't be had.
    """
    for family in (socket.AF_INET6, socket.AF_INET):
        try:
            sock = socket.socket(family, socket.SOCK_STREAM)
        except OSError:
            continue
        try:
            if sys.platform != "win32":  # there it would let two listeners share the port
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
            sock.bind(("", port))
            sock.listen(_BACKLOG)
            sock.setblocking(False)
        except OSError as error:
            sock.close()
            if family == socket.AF_INET6 and error.errno in (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT, errno.EINVAL):
                continue
            why = (error.strerror or str(error)).lower()
            raise UsageError(
                f"--rollcall-port {port} can't be listened on by {me} ({why}): give every host another free port"
            ) from None
        return sock
    raise UsageError(f"--rollcall-port {port}: {me} has neither IPv4 nor IPv6")


def raise_file_limit(connections: int) -> None:
    """Raises this process's limit of open files where so many connections would not fit under it."""
    try:
        import resource
    except ImportError:
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = connections + 512
    if soft != resource.RLIM_INFINITY and soft < wanted:
        most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
        except (OSError, ValueError):
            pass  # the connections that don't fit wait at the listener


class Listener:
    """``on_hello(link, hello, proved)`` and ``on_resume(link, resume)`` take a link over, or :meth:`refuse` it.

    With a ``secret`` every caller is challenged to prove it as soon as it is connected. Nobody comes further without,
    and every frame of the link is sealed from then on.
    ``on_doubt(host, address, claim)`` hears of those who call themselves ``host`` and have not.
    """

    def __init__(
        self, loop: Loop, sock: socket.socket, secret: str, hosts: int, timeouts: Timeouts, journal: Journal
    ) -> None:  # fmt: skip
        self.on_hello: Callable[[Link, Hello, bool], None]
        self.on_resume: Callable[[Link, Resume], None]
        self.on_doubt: Callable[[str, str, str], None]
        self._loop = loop
        self._sock = sock
        self._secret = secret
        self._most = hosts + _SPARE
        self._timeouts = timeouts
        self._journal = journal
        self._strangers: dict[Link, float] = {}
        self._refused: set[Link] = set()
        self._sweeping = False

    def open(self) -> None:
        """Lets callers in from now on."""
        self._loop.watch(self._sock.fileno(), READ, self._accept)

    def close(self) -> None:
        self._loop.forget(self._sock.fileno())
        self._sock.close()
        for link in self._strangers:
            link.close()
        self._strangers.clear()
        self._refused.clear()

    def refuse(self, link: Link, reason: str, **more: Any) -> None:
        """Tells why, and lets the other end close first, so that it can read it."""
        link.send(wire.pack("refused", reason=reason, **more))
        link.ignore()
        link.on_end = self._gone
        self._refused.add(link)
        self._strangers.setdefault(link, self._loop.clock())
        self._sweep_soon()
        link.finish()

    def waiting(self) -> list[str]:
        """Addresses of those who are connected but have not said hello."""
        return [link.peer for link in self._strangers if link not in self._refused]

    def _accept(self, _ready: int) -> None:
        for _ in range(_AT_ONCE):
            try:
                sock, address = self._sock.accept()
            except BlockingIOError:
                return
            except OSError as error:
                if error.errno in _FULL:
                    self._pause()
                    return
                continue  # the caller has gone again
            while len(self._strangers) >= self._most:
                self._evict(next(iter(self._strangers)))
            try:
                link = Link(
                    self._loop, sock, plain_address(str(address[0])), wire.HELLO_LIMIT, self._first, self._gone,
                    self._journal,
                )  # fmt: skip
            except OSError:  # gone already, or the kernel has no room to watch it
                sock.close()
                continue
            self._strangers[link] = self._loop.clock()
            self._sweep_soon()
            if self._secret:
                link.owner = draw()
                link.send(wire.pack("challenge", nonce=link.owner))

    def _pause(self) -> None:
        """Out of descriptors: the listening socket stays ready, so it isn't watched for a moment."""
        self._loop.forget(self._sock.fileno())
        if self._strangers:
            self._evict(next(iter(self._strangers)))
        self._loop.call_later(self._timeouts.retry, lambda: self.open() if self._sock.fileno() >= 0 else None)

    def _evict(self, link: Link) -> None:
        self._strangers.pop(link, None)
        self._refused.discard(link)
        link.close()

    def _gone(self, link: Link, _why: str, _eof: bool) -> None:
        self._strangers.pop(link, None)
        self._refused.discard(link)

    def _sweep_soon(self) -> None:
        if not self._sweeping:
            self._sweeping = True
            self._loop.call_later(self._timeouts.hello / 4, self._sweep)

    def _sweep(self) -> None:
        self._sweeping = False
        latest = self._loop.clock() - self._timeouts.hello
        while self._strangers and next(iter(self._strangers.values())) <= latest:
            self._evict(next(iter(self._strangers)))
        if self._strangers:
            self._sweep_soon()

    def _first(self, link: Link, payload: bytes) -> None:
        message = wire.unpack(payload)
        kind = message["t"]
        opening: Hello | Resume
        if kind == "resume" and message.get("protocol") == wire.PROTOCOL:
            opening = Resume.from_wire(message)
        elif kind == "hello":
            opening = Hello.from_wire(message)
        else:
            raise wire.WireError(f"a {kind!r} where a hello is expected")
        if not self._secret:
            self._welcome(link, opening, False)
        elif isinstance(opening, Hello) and opening.protocol != wire.PROTOCOL:
            self._doubt(link, opening.host, "speaks another protocol", ANOTHER_PROTOCOL)
        elif not opening.nonce:
            self._doubt(link, opening.host, "has no secret (--secret, MUSTER_SECRET)")
        else:
            link.on_frame = partial(self._proof, payload, opening)

    def _proof(self, said: bytes, opening: Hello | Resume, link: Link, payload: bytes) -> None:
        message = wire.unpack(payload)
        if message["t"] != "proof":
            raise wire.WireError("no proof of the secret")
        proof, key = prove(self._secret, said, link.owner)
        if not same(wire.token(message, "proof"), proof):
            self._doubt(link, opening.host, "has another secret (--secret, MUSTER_SECRET)")
            return
        from musterpoint.channel.secret import Seal

        link.seal = Seal(key, leads=True)
        self._welcome(link, opening, True)

    def _welcome(self, link: Link, opening: Hello | Resume, proved: bool) -> None:
        self._strangers.pop(link)
        if isinstance(opening, Hello):
            self.on_hello(link, opening, proved)
        else:
            self.on_resume(link, opening)

    def _doubt(self, link: Link, host: str, claim: str, answer: str = ANOTHER_SECRET) -> None:
        self.refuse(link, answer)
        self.on_doubt(host, link.peer, claim)
