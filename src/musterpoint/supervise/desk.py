"""The desk: a unix socket at which rank stubs, and launchers that the job runs as its program, report.

Linux' abstract namespace keeps it off the disk, so a read-only root file system is fine and nothing is left behind;
elsewhere it is a file in a private directory. Only processes of our own user are served. ``_socket`` is what is below
``socket``, which costs 3 ms at import: a job on one host needs no more of it than this.
"""

from __future__ import annotations

import _socket
import os
import sys
from typing import Callable

from musterpoint.loop import READ, Loop

_ABSTRACT = "linux" in sys.platform
_INT = 4
"""Bytes of C's int, wherever there are such sockets."""
LONGEST_LINE = 4 << 20
"""Bytes: a handed-over plan carries a whole environment; a stub's lines are short."""


class Visitor:
    """One connection. ``on_line`` and ``on_gone`` are set by whoever takes it over; :attr:`facts` are theirs."""

    __slots__ = ("_buffer", "_loop", "_socket", "on_gone", "on_line")

    def __init__(self, loop: Loop, sock: _socket.socket) -> None:
        self._loop = loop
        self._socket = sock
        self._buffer = b""
        self.on_line: Callable[[list[str], str], None] = lambda words, line: None
        self.on_gone: Callable[[], None] = lambda: None

    def tell(self, line: str, descriptors: tuple[int, ...] = ()) -> None:
        """Sends a line, with descriptors beside it. A visitor that left meanwhile is noticed by the loop."""
        data = line.encode() + b"\n"
        try:
            if descriptors:
                numbers = b"".join(fd.to_bytes(_INT, sys.byteorder) for fd in descriptors)
                self._socket.sendmsg([data], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, numbers)])
            else:
                self._socket.sendall(data)
        except OSError:
            pass

    def read(self, _ready: int) -> None:
        try:
            data = self._socket.recv(65536)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        self._buffer += data
        while b"\n" in self._buffer:
            line, _, self._buffer = self._buffer.partition(b"\n")
            text = line.decode("utf-8", "replace")
            self.on_line(text.split(), text)
        if not data or len(self._buffer) > LONGEST_LINE:
            self.close()
            self.on_gone()

    def close(self) -> None:
        if self._socket.fileno() >= 0:
            self._loop.forget(self._socket.fileno())
            self._socket.close()


class Desk:
    """Listens at :attr:`address` (``@name``: abstract). ``greet`` gets every new visitor."""

    def __init__(self, loop: Loop, greet: Callable[[Visitor], None]) -> None:
        self._loop = loop
        self._greet = greet
        self._directory = ""
        self._visitors: list[Visitor] = []
        self._socket = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
        self.address = self._bind()
        self._socket.listen(4096)
        self._socket.setblocking(False)
        loop.watch(self._socket.fileno(), READ, self._accept)

    def _bind(self) -> str:
        name = f"musterpoint-{os.getpid()}-{os.urandom(12).hex()}"
        if _ABSTRACT:
            self._socket.bind("\0" + name)
            return "@" + name
        import tempfile

        self._directory = tempfile.mkdtemp(prefix="muster-")
        path = os.path.join(self._directory, "desk")
        self._socket.bind(path)
        return path

    def _accept(self, _ready: int) -> None:
        while True:
            try:
                fd, _address = self._socket._accept()  # type: ignore[attr-defined]
            except (BlockingIOError, ConnectionAbortedError):
                return
            sock = _socket.socket(fileno=fd)
            if not _same_user(sock):
                sock.close()
                continue
            sock.setblocking(True)  # what we send is short; reading happens when the loop says so
            visitor = Visitor(self._loop, sock)
            self._visitors.append(visitor)
            self._loop.watch(sock.fileno(), READ, visitor.read)
            self._greet(visitor)

    def close(self) -> None:
        for visitor in self._visitors:
            visitor.close()
        self._loop.forget(self._socket.fileno())
        self._socket.close()
        if self._directory:
            import shutil

            shutil.rmtree(self._directory, ignore_errors=True)


def _same_user(sock: _socket.socket) -> bool:
    """Whether the peer runs as our user, or as root."""
    peercred = getattr(_socket, "SO_PEERCRED", None)
    if peercred is None:
        return True  # the private directory's mode keeps strangers out there
    credentials = sock.getsockopt(_socket.SOL_SOCKET, peercred, 3 * _INT)  # pid, uid, gid
    return int.from_bytes(credentials[_INT : 2 * _INT], sys.byteorder) in (0, os.geteuid())


def address_of(text: str) -> str:
    """A desk's address as ``connect`` takes it."""
    return "\0" + text[1:] if text.startswith("@") else text
