"""The leader's listening port: accepts callers, and hands over those that send a hello or resume a session.

Callers that have sent neither are limited: in number, in bytes, and to a few seconds.
"""

from __future__ import annotations

import errno
import os
import socket
import sys
from typing import Any, Callable

from musterpoint.base.errors import UsageError
from musterpoint.base.loop import READ
from musterpoint.base.posix import resource
from musterpoint.base.records import NamedTuple
from musterpoint.core.channel import wire
from musterpoint.core.channel.link import Context, Link, LinkOwner, plain_address
from musterpoint.core.channel.secret import Seal, check_proof
from musterpoint.core.channel.session import Resume, random_token
from musterpoint.core.rollcall.hello import ANOTHER_PROTOCOL, ANOTHER_SECRET, Hello

_BACKLOG = 4096
_AT_ONCE = 64
_SPARE = 128
_FULL = {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM}


def listen(port: int, me: str) -> socket.socket:
    """A socket that listens on ``port``, the roll call's.

    Raises:
        UsageError: the port is taken or not allowed.
    """
    try:
        return listening(port)
    except OSError as error:
        why = (error.strerror or str(error)).lower()
        raise UsageError(
            f"--rollcall-port {port} can't be listened on by {me} ({why}): give every host another free port"
        ) from None


def listening(port: int) -> socket.socket:
    """A socket that listens on ``port`` (0: any), for IPv6 and IPv4 where the system has both.

    Raises:
        OSError: the port is taken or not allowed, or the system has neither.
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
            raise
        return sock
    raise OSError(errno.EAFNOSUPPORT, "this host has neither IPv4 nor IPv6")


def raise_file_limit(connections: int) -> None:
    """Raises this process's limit of open files, if ``connections`` would exceed it."""
    if os.name != "posix":
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = connections + 512
    if soft != resource.RLIM_INFINITY and soft < wanted:
        most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
        except (OSError, ValueError):
            pass  # the connections that don't fit wait at the listener


class ListenerOwner(NamedTuple):
    """What a listener calls.

    ``on_hello(link, hello, proved)`` and ``on_resume(link, resume)`` take the link over or refuse it
    (:meth:`Listener.refuse`); ``proved`` says that the caller knows the secret.
    ``on_unproved(host, address, claim)``: a caller that claims to be ``host`` didn't prove the secret and was refused.
    """

    on_hello: Callable[[Link, Hello, bool], None]
    on_resume: Callable[[Link, Resume], None]
    on_unproved: Callable[[str, str, str], None]


class _Stranger:
    """A caller that has not been handed over.

    ``since``: when it connected. ``nonce``: what it has to prove the secret with. ``opened``: its first frame, and the
    message in it. ``refused``: whether it was refused.
    """

    __slots__ = ("nonce", "opened", "refused", "since")

    def __init__(self, since: float) -> None:
        self.since = since
        self.nonce = ""
        self.opened: tuple[bytes, Hello | Resume] | None = None
        self.refused = False


class Listener:
    """Hands each caller that sends a hello or resumes a session to ``owner``.

    With a ``secret`` every caller gets a challenge when it connects. It is refused without a proof; after the proof
    every frame of the link is sealed.
    """

    def __init__(self, context: Context, sock: socket.socket, secret: str, hosts: int, owner: ListenerOwner) -> None:
        self._context = context
        self._loop, self._timeouts = context.loop, context.timeouts
        self._sock = sock
        self._secret = secret
        self._most = hosts + _SPARE
        self._owner = owner
        self._strangers: dict[Link, _Stranger] = {}
        self._link_owner = LinkOwner(self._frame, self._gone)
        self._sweeping = False
        self._watch()

    def hand_over(self, owner: ListenerOwner) -> None:
        """From now on ``owner`` gets the callers."""
        self._owner = owner

    def close(self) -> None:
        self._loop.forget(self._sock.fileno())
        self._sock.close()
        for link in self._strangers:
            link.close()
        self._strangers.clear()

    def refuse(self, link: Link, reason: str, **more: Any) -> None:
        """Sends ``reason``, and waits for the other end to close, so that it can read it."""
        link.send(wire.pack("refused", reason=reason, **more))
        link.ignore()
        link.hand_over(self._link_owner)
        self._strangers.setdefault(link, _Stranger(self._loop.clock())).refused = True
        self._sweep_soon()
        link.finish()

    def waiting(self) -> list[str]:
        """Addresses of callers that have sent no hello yet."""
        return [link.peer for link, stranger in self._strangers.items() if not stranger.refused]

    def _watch(self) -> None:
        self._loop.watch(self._sock.fileno(), READ, self._accept)

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
                peer = plain_address(str(address[0]))
                link = Link(self._context, sock, peer, wire.HELLO_LIMIT, self._link_owner)
            except OSError:  # gone already, or the kernel has no memory to watch it
                sock.close()
                continue
            stranger = self._strangers[link] = _Stranger(self._loop.clock())
            self._sweep_soon()
            if self._secret:
                stranger.nonce = random_token()
                link.send(wire.pack("challenge", nonce=stranger.nonce))

    def _pause(self) -> None:
        """Out of descriptors: stops watching the listening socket for a moment, since it stays ready."""
        self._loop.forget(self._sock.fileno())
        if self._strangers:
            self._evict(next(iter(self._strangers)))
        self._loop.call_later(self._timeouts.retry, lambda: self._watch() if self._sock.fileno() >= 0 else None)

    def _evict(self, link: Link) -> None:
        self._strangers.pop(link, None)
        link.close()

    def _gone(self, link: Link, _why: str, _eof: bool) -> None:
        self._strangers.pop(link, None)

    def _sweep_soon(self) -> None:
        if not self._sweeping:
            self._sweeping = True
            self._loop.call_later(self._timeouts.hello / 4, self._sweep)

    def _sweep(self) -> None:
        self._sweeping = False
        latest = self._loop.clock() - self._timeouts.hello
        while self._strangers and next(iter(self._strangers.values())).since <= latest:
            self._evict(next(iter(self._strangers)))
        if self._strangers:
            self._sweep_soon()

    def _frame(self, link: Link, payload: bytes) -> None:
        stranger = self._strangers[link]
        if stranger.opened is None:
            self._opening(link, stranger, payload)
        else:
            self._proof(link, stranger.nonce, *stranger.opened, payload)

    def _opening(self, link: Link, stranger: _Stranger, payload: bytes) -> None:
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
            self._let_in(link, opening, False)
        elif isinstance(opening, Hello) and opening.protocol != wire.PROTOCOL:
            self._refuse_unproved(link, opening.host, "speaks another protocol", ANOTHER_PROTOCOL)
        elif not opening.nonce:
            self._refuse_unproved(link, opening.host, "has no secret (--secret, MUSTER_SECRET)")
        else:
            stranger.opened = payload, opening

    def _proof(self, link: Link, nonce: str, said: bytes, opening: Hello | Resume, payload: bytes) -> None:
        message = wire.unpack(payload)
        if message["t"] != "proof":
            raise wire.WireError("no proof of the secret")
        key = check_proof(self._secret, said, nonce, wire.token(message, "proof"))
        if key is None:
            self._refuse_unproved(link, opening.host, "has another secret (--secret, MUSTER_SECRET)")
            return
        link.use_seal(Seal(key, leads=True))
        self._let_in(link, opening, True)

    def _let_in(self, link: Link, opening: Hello | Resume, proved: bool) -> None:
        self._strangers.pop(link)
        if isinstance(opening, Hello):
            self._owner.on_hello(link, opening, proved)
        else:
            self._owner.on_resume(link, opening)

    def _refuse_unproved(self, link: Link, host: str, claim: str, answer: str = ANOTHER_SECRET) -> None:
        self.refuse(link, answer)
        self._owner.on_unproved(host, link.peer, claim)
