"""Connects to one host: looks its name up, tries every address, pauses, and repeats until it is stopped."""

from __future__ import annotations

import errno
import os
import socket
from typing import Callable, Final, Literal, Protocol

from musterpoint.base.loop import WRITE, Timer
from musterpoint.base.records import NamedTuple
from musterpoint.core.channel.link import Context, plain_address
from musterpoint.core.channel.names import Answer, Names
from musterpoint.core.channel.timeouts import Timeouts

Miss = Literal["refused", "vanished", "nothing"]
"""Why a round of dialling brought no connection."""
REFUSED: Final = "refused"
"""The host at the address answered that no process listens there."""
VANISHED: Final = "vanished"
"""The resolver says that there is no such name."""
NOTHING: Final = "nothing"
"""Neither: a timeout, or a network error."""

_UNDER_WAY = {errno.EINPROGRESS, errno.EWOULDBLOCK, getattr(errno, "WSAEWOULDBLOCK", errno.EWOULDBLOCK)}


def is_local(address: str) -> bool:
    """Whether ``address`` belongs to this host, so that a socket can be bound to it."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.bind((address, 0))
    except OSError:
        return False
    return True


def is_loopback(address: str) -> bool:
    return address.startswith("127.") or address == "::1"


def source_for(address: str, own: tuple[str, ...]) -> str:
    """Which of our ``own`` addresses to connect to ``address`` from.

    Empty where the system's own choice is one of them, or where none fits. A host with several networks has several
    addresses, and perhaps only one of them has a route to ``address``.
    """
    # a name that resolves to 127.0.1.1 on its own host (Debian) can't call another host from there
    fitting = [
        source for source in own if (":" in source) == (":" in address) and is_loopback(source) <= is_loopback(address)
    ]
    return "" if not fitting or systems_choice(address) in fitting else fitting[0]


def systems_choice(address: str) -> str:
    """The local address that the system would use to reach ``address``; empty where there is no route."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect((address, 9))  # sends nothing
            return plain_address(probe.getsockname()[0])
    except OSError:
        return ""


def up_to(seconds: float, least: float) -> float:
    """A random time from the share ``least`` of ``seconds`` up to all of them.

    Many hosts start together. If they also went on together, they would find the leader's port full each time: its
    queue takes some thousand connections, and the kernel of a host that finds it full calls again once a second.
    """
    return seconds * (least + (1.0 - least) * int.from_bytes(os.urandom(2), "big") / 65535)


def pause_before(tries: int, timeouts: Timeouts) -> float:
    """Seconds to wait before the next round, after so many ``tries``."""
    return up_to(min(timeouts.retry * 2 ** min(tries, 10), timeouts.retry_most), 0.5)


def longest_try(timeouts: Timeouts) -> float:
    """Seconds that one try to connect may take. It differs by a second, as that is when a kernel calls again."""
    return up_to(timeouts.connect, 2 / 3)


class Target(NamedTuple):
    """What to dial: the name and port of a ``host``.

    ``sources`` gives the local addresses to connect from. One of the right family is bound; if that can't connect, the
    system chooses.
    """

    host: str
    port: int
    sources: Callable[[], tuple[str, ...]]


OnConnect = Callable[[socket.socket, str], None]
OnMiss = Callable[[Miss, str], None]


class Dialing(Protocol):
    """What dials one host again and again; :class:`Dialer` says when."""

    def start(self) -> None: ...

    def again(self) -> None: ...

    def stop(self) -> None: ...


class Dialer:
    """Calls ``on_connect(sock, address)`` for a connection, ``on_miss(kind, detail)`` when all addresses failed.

    After either call it waits: :meth:`again` continues (the connection may have been the wrong host's), :meth:`stop`
    ends it.
    """

    def __init__(self, context: Context, names: Names, target: Target, on_connect: OnConnect, on_miss: OnMiss) -> None:
        self._loop, self._timeouts = context.loop, context.timeouts
        self._names = names
        self._host, self._port, self._sources = target
        self._on_connect = on_connect
        self._on_miss = on_miss
        self._round = 0
        self._stopped = True
        self._left: list[tuple[str, str]] = []
        self._sock: socket.socket | None = None
        self._timer: Timer | None = None
        self._kind: Miss = NOTHING
        self._details: list[str] = []

    def start(self) -> None:
        """Begins at once; pauses are short again."""
        self.stop()
        self._stopped = False
        self._round = 0
        self._look_up()

    def again(self) -> None:
        """Tries the next address, or looks the name up again after a pause."""
        if self._stopped:
            return
        if self._left:
            self._try_next()
            return
        pause = pause_before(self._round, self._timeouts)
        self._round += 1
        self._wait(pause, self._look_up)

    def stop(self) -> None:
        self._stopped = True
        self._left = []
        self._drop()

    def _wait(self, seconds: float, call: Callable[[], None]) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_later(seconds, call)

    def _drop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._sock is not None:
            self._loop.forget(self._sock.fileno())
            self._sock.close()
            self._sock = None

    def _look_up(self) -> None:
        turn = self._round

        def answered(answer: Answer) -> None:
            if not self._stopped and turn == self._round:
                self._resolved(answer)

        self._names.look_up_both(self._host, answered)

    def _resolved(self, answer: Answer) -> None:
        if not answer.addresses:
            self._on_miss(VANISHED if answer.vanished else NOTHING, answer.trouble)
            return
        own = self._sources()
        for address in answer.addresses:
            if source := source_for(address, own):
                self._left.append((address, source))
            self._left.append((address, ""))
        self._kind, self._details = REFUSED, []
        self._try_next()

    def _try_next(self) -> None:
        while self._left:
            address, source = self._left.pop(0)
            family = socket.AF_INET6 if ":" in address else socket.AF_INET
            try:
                sock = socket.socket(family, socket.SOCK_STREAM)
            except OSError as error:
                self._missed(address, error.errno or 0)
                continue
            sock.setblocking(False)
            try:
                if source:
                    sock.bind((source, 0))
                code = sock.connect_ex((address, self._port))
            except OSError as error:
                code = error.errno or errno.EINVAL
            if code == 0 or code in _UNDER_WAY:
                self._sock = sock
                self._loop.watch(sock.fileno(), WRITE, lambda _ready, to=address: self._connected(to))  # type: ignore[misc]
                self._wait(longest_try(self._timeouts), lambda to=address, by=source: self._timed_out(to, by))  # type: ignore[misc]
                return
            sock.close()
            self._missed(address, code, bound=bool(source))
        self._on_miss(self._kind, "; ".join(self._details))

    def _connected(self, address: str) -> None:
        sock, self._sock = self._sock, None
        if sock is None:
            return
        self._loop.forget(sock.fileno())
        self._drop()
        code = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if code == 0 and sock.getsockname() == sock.getpeername():
            code = errno.ECONNREFUSED  # TCP connected to itself: our ephemeral port is the port dialled
        if code:
            sock.close()
            if code == errno.ECONNREFUSED:  # there is a route; the leader wouldn't know us from another source
                self._left = [(to, source) for to, source in self._left if to != address]
            self._missed(address, code)
            self._try_next()
            return
        self._left = [(to, source) for to, source in self._left if to != address]
        self._on_connect(sock, plain_address(address))

    def _timed_out(self, address: str, source: str) -> None:
        self._drop()
        self._missed(address, errno.ETIMEDOUT, bound=bool(source))
        self._try_next()

    def _missed(self, address: str, code: int, bound: bool = False) -> None:
        if bound:
            return  # the system's own choice of a source is tried next
        if code != errno.ECONNREFUSED:
            self._kind = NOTHING
        detail = f"{address} port {self._port}: {os.strerror(code).lower()}"
        if detail not in self._details:
            self._details.append(detail)
