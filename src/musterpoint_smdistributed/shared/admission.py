"""Calls at a listening socket until they have proved themselves: one thread, and bounds on number, bytes and time.

A stranger can always connect. Before it has proved anything it gets no thread, a few hundred bytes, and some seconds;
where many come at once, those that have said nothing for the longest are hung up on first.
"""

from __future__ import annotations

import hmac
import selectors
import socket
import time
from typing import Any, Callable, Generator, Generic, NamedTuple, TypeVar, cast

T = TypeVar("T")
Talk = Callable[[socket.socket], Generator[int, bytes, T]]
"""A conversation with a caller. It yields how many bytes it needs next and is sent them; what it sends itself has to
fit into the socket's buffer. It returns who the caller is, or raises ValueError or OSError for a stranger."""

PATIENCE = 20.0
"""Seconds for a caller to prove itself."""
MOST = 128
"""Callers at a time."""


class Admitted(NamedTuple):
    """A caller that has proved itself: its connection, which blocks, and what its conversation returned."""

    connection: socket.socket
    who: Any


class _Caller(Generic[T]):
    def __init__(self, connection: socket.socket, talk: Talk[T], until: float) -> None:
        self.connection, self.until = connection, until
        self.got = bytearray()
        self._talk = talk(connection)
        self._needs = next(self._talk)

    def read(self) -> T | None:
        """Takes what is there and goes on talking; who it is, once that is known.
        Raises OSError, ValueError: it is a stranger, or has hung up."""
        piece = self.connection.recv(self._needs - len(self.got))
        if not piece:
            raise OSError("it hung up")
        self.got += piece
        if len(self.got) < self._needs:
            return None
        said, self.got = bytes(self.got), bytearray()
        try:
            self._needs = self._talk.send(said)
        except StopIteration as done:
            return cast(T, done.value)
        return None


class Admission(Generic[T]):
    """Takes calls at ``listener``; strangers never get further than this.

    ``talk``: the conversation with each caller, for which it has so many ``seconds``. ``most``: callers at a time.
    """

    def __init__(self, listener: socket.socket, talk: Talk[T], seconds: float = PATIENCE, most: int = MOST) -> None:
        self._listener, self._talk, self._seconds, self._most = listener, talk, seconds, most
        self._selector = selectors.DefaultSelector()
        self._closes, self._closed = socket.socketpair()
        listener.setblocking(False)
        self._selector.register(listener, selectors.EVENT_READ)
        self._selector.register(self._closed, selectors.EVENT_READ)
        self._callers: dict[socket.socket, _Caller[T]] = {}

    def next(self, until: float | None = None) -> Admitted:
        """The next caller that has proved itself.

        Raises TimeoutError where nobody has by ``until``, and OSError where :meth:`close` was called.
        """
        while True:
            now = time.monotonic()
            for late in [each for each in self._callers.values() if each.until <= now]:
                self._hang_up(late)
            if until is not None and now >= until:
                raise TimeoutError
            moments = [each.until for each in self._callers.values()] + ([] if until is None else [until])
            for key, _ in self._selector.select(max(min(moments) - now, 0.0) if moments else None):
                if key.fileobj is self._closed:
                    raise OSError("it was closed")
                if key.fileobj is self._listener:
                    self._accept()
                    continue
                caller: _Caller[T] = key.data
                who = self._heard(caller) if caller.connection in self._callers else None
                if who is not None:
                    return Admitted(caller.connection, who)

    def close(self) -> None:
        """Has :meth:`next` fail, in whichever thread it is."""
        self._closes.close()

    def end(self) -> None:
        """Hangs up on all that have proved nothing."""
        for caller in list(self._callers.values()):
            self._hang_up(caller)
        self._selector.close()
        self._closes.close()
        self._closed.close()

    def _accept(self) -> None:
        try:
            connection, _ = self._listener.accept()
        except OSError:
            return  # it has gone again; or there are no descriptors left, until strangers' time is up
        connection.setblocking(False)
        try:
            caller = _Caller(connection, self._talk, time.monotonic() + self._seconds)
        except (OSError, ValueError):
            connection.close()
            return
        if len(self._callers) >= self._most:
            silent = (each for each in self._callers.values() if not each.got)
            self._hang_up(next(silent, next(iter(self._callers.values()))))
        self._callers[connection] = caller
        self._selector.register(connection, selectors.EVENT_READ, caller)

    def _heard(self, caller: _Caller[T]) -> T | None:
        try:
            who = caller.read()
        except BlockingIOError:
            return None
        except (OSError, ValueError, RecursionError):
            self._hang_up(caller)
            return None
        if who is not None:
            self._forget(caller)
            caller.connection.setblocking(True)
        return who

    def _forget(self, caller: _Caller[T]) -> None:
        del self._callers[caller.connection]
        self._selector.unregister(caller.connection)

    def _hang_up(self, caller: _Caller[T]) -> None:
        self._forget(caller)
        caller.connection.close()


def proof(token: bytes, role: bytes, *said: bytes) -> bytes:
    """That somebody knows ``token``, without telling it."""
    return hmac.digest(token, role + b"".join(said), "sha256")


def proves(given: Any, token: bytes, role: bytes, *said: bytes) -> bool:
    """Whether ``given`` is that proof; it may be anything that a stranger sent."""
    return isinstance(given, bytes) and hmac.compare_digest(given, proof(token, role, *said))


def receive(connected: socket.socket, size: int) -> bytes:
    """So many bytes. Raises EOFError where the other end hangs up before."""
    data = bytearray()
    while len(data) < size:
        piece = connected.recv(size - len(data))
        if not piece:
            raise EOFError("the other end hung up")
        data += piece
    return bytes(data)
