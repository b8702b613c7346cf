"""The control socket: a unix socket at which rank stubs, launch agents and nested launchers report.

Linux' abstract namespace keeps it off the disk, so a read-only root file system is fine and nothing is left behind;
elsewhere it is a file in a private directory. Every process in the same network can connect, so the first thing that
counts is the job's token, which only the job's processes have in their environment; nothing else is read before it.
"""

from __future__ import annotations

import os
import socket
import struct
import sys
from typing import Callable

from musterpoint.loop import READ, Loop, Timer

_ABSTRACT = "linux" in sys.platform
_CREDENTIALS = struct.Struct("=iII")
"""Pid, uid and gid of a caller (``struct ucred``, unix(7))."""
LONGEST_LINE = 4 << 20
"""Bytes: a handed-over plan carries a whole environment; a stub's lines are short."""
TOKEN_BYTES = 16
MOST_ACCEPTED = 32
"""Connections that are accepted before anything else has its turn, however many there are."""
MOST_UNIDENTIFIED = 256
"""Connections that haven't shown the token; one more, and the oldest is closed."""
IDENTIFY_TIMEOUT = 60.0
"""Seconds in which a connection has to show the token."""
SEND_TIMEOUT = 5.0
"""Seconds until a connection that doesn't read what it is sent is dropped: all else waits meanwhile."""
ACCEPT_PAUSE = 0.2
"""Seconds until connections are accepted again where there was no descriptor for one."""

OnLine = Callable[[list[str], str], None]
"""Gets the words of a line, and the line."""


class Connection:
    """One connection that has shown the token; :meth:`route_to` says who gets its lines.

    An exception in the handling of a line closes this connection, and nothing else. ``closed`` and ``failed`` are the
    control socket's: they are called when it was closed, and with what went wrong.
    """

    __slots__ = ("_buffer", "_closed", "_failed", "_loop", "_on_end", "_on_line", "_socket")

    def __init__(
        self, loop: Loop, sock: socket.socket, closed: Callable[[Connection], None], failed: Callable[[str], None]
    ) -> None:
        self._loop = loop
        self._socket = sock
        self._closed, self._failed = closed, failed
        self._buffer = b""
        self._on_line: OnLine = lambda words, line: None
        self._on_end: Callable[[], None] = lambda: None

    def route_to(self, on_line: OnLine, on_end: Callable[[], None] | None = None) -> None:
        """From now on ``on_line`` gets every line, and ``on_end`` (None: as before) the end of the other side."""
        self._on_line = on_line
        if on_end is not None:
            self._on_end = on_end

    def ignore(self) -> None:
        """From now on no line is looked at; the end still is."""
        self._on_line = lambda words, line: None

    def send(self, line: str, descriptors: tuple[int, ...] = ()) -> None:
        """Sends a line, with descriptors beside it. The loop notices a connection that ended or doesn't read."""
        data = line.encode() + b"\n"
        if self._socket.fileno() < 0:
            return
        self._socket.settimeout(SEND_TIMEOUT)
        try:
            if descriptors:
                socket.send_fds(self._socket, [data], descriptors)
            else:
                self._socket.sendall(data)
        except OSError:
            self._shut_down()
        self._socket.setblocking(False)

    def _shut_down(self) -> None:
        try:
            self._socket.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass  # the other side has ended

    def read(self, _ready: int) -> None:
        """Reads what is there. Descriptors that are sent beside it are closed by the system, unasked for."""
        try:
            data = self._socket.recv(65536)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        *lines, self._buffer = (self._buffer + data).split(b"\n")
        over = not data or len(self._buffer) > LONGEST_LINE
        try:
            for line in lines:
                text = line.decode("utf-8", "replace")
                self._on_line(text.split(), text)
                if self._socket.fileno() < 0:
                    return
        except Exception as error:
            self._failed(f"{type(error).__name__}: {error}")
            over = True
        if over:
            self.close()
            self._on_end()

    def close(self) -> None:
        if self._socket.fileno() >= 0:
            self._loop.forget(self._socket.fileno())
            self._socket.close()
            self._closed(self)


class _Unidentified:
    """A connection that has shown no token so far: what it sent, and until when it has time."""

    __slots__ = ("sent", "socket", "until")

    def __init__(self, sock: socket.socket, until: float) -> None:
        self.socket = sock
        self.until = until
        self.sent = b""


class ControlSocket:
    """Listens at :attr:`address` (``@name``: abstract). ``on_connection`` gets every connection that has shown
    :attr:`token`; ``warn`` gets a sentence for each kind of thing that went wrong, once.
    """

    def __init__(
        self, loop: Loop, on_connection: Callable[[Connection], None], warn: Callable[[str], None] = lambda text: None
    ) -> None:
        self._loop = loop
        self._on_connection, self._warn = on_connection, warn
        self._warned: set[str] = set()
        self._directory = ""
        self._connections: set[Connection] = set()
        self._unidentified: dict[int, _Unidentified] = {}
        self._timer: Timer | None = None
        self.token = os.urandom(TOKEN_BYTES).hex()
        self._expected = self.token.encode() + b"\n"
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
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
        path = os.path.join(self._directory, "control_socket")
        self._socket.bind(path)
        return path

    # -- before the token --

    def _accept(self, _ready: int) -> None:
        """Accepts some; the loop comes back for more, after whatever else is to be done."""
        for accepted in range(MOST_ACCEPTED):
            try:
                sock, _address = self._socket.accept()
            except (BlockingIOError, ConnectionAbortedError):
                return
            except OSError as error:
                if not accepted:  # after others were accepted it may fail though no connection waits
                    self._no_descriptor(error)
                return
            if not _is_same_user(sock):
                sock.close()
                self._warn_once("a process of another user connected to this job's control socket and was sent away")
                continue
            sock.setblocking(False)
            fd = sock.fileno()
            self._unidentified[fd] = _Unidentified(sock, self._loop.clock() + IDENTIFY_TIMEOUT)
            self._loop.watch(fd, READ, lambda _ready, fd=fd: self._identify(fd))  # type: ignore[misc]
            if len(self._unidentified) > MOST_UNIDENTIFIED:
                self._drop_oldest()
            self._expire()

    def _no_descriptor(self, error: OSError) -> None:
        """An unidentified connection gives its descriptor up; without any, new ones wait until there is one."""
        self._warn_once(f"the control socket can't take a connection: {error.strerror}; others wait until it can")
        if self._unidentified:
            self._drop_oldest()
            return
        self._loop.forget(self._socket.fileno())
        self._loop.call_later(ACCEPT_PAUSE, self._accept_again)

    def _drop_oldest(self) -> None:
        """Closes the oldest of those that have shown no token, if it shows none now."""
        oldest = next(iter(self._unidentified))
        self._identify(oldest)
        if oldest in self._unidentified:
            self._drop(oldest)

    def _accept_again(self) -> None:
        if self._socket.fileno() >= 0:
            self._loop.watch(self._socket.fileno(), READ, self._accept)

    def _identify(self, fd: int) -> None:
        caller = self._unidentified[fd]
        try:
            caller.sent += (data := caller.socket.recv(len(self._expected) - len(caller.sent)))
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._drop(fd)
        elif len(caller.sent) == len(self._expected) or b"\n" in data:
            # as numbers: how long that takes doesn't tell how much of it is right
            if int.from_bytes(caller.sent, "big") ^ int.from_bytes(self._expected, "big"):
                self._warn_once(
                    "a process without this job's token connected to its control socket and was sent away (a "
                    "launcher.py in the job's code must be of the same version as the musterpoint that runs it)"
                )
                self._drop(fd)
            else:
                del self._unidentified[fd]
                self._admit(caller.socket)

    def _admit(self, sock: socket.socket) -> None:
        connection = Connection(self._loop, sock, self._connections.discard, self._failed)
        self._connections.add(connection)
        self._loop.watch(sock.fileno(), READ, connection.read)
        self._on_connection(connection)

    def _drop(self, fd: int) -> None:
        self._loop.forget(fd)
        self._unidentified.pop(fd).socket.close()

    def _expire(self) -> None:
        """Closes those whose time is over, and looks again when the oldest of the others' is."""
        while self._unidentified:
            fd, oldest = next(iter(self._unidentified.items()))
            if oldest.until > self._loop.clock():
                self._timer = self._timer or self._loop.call_at(oldest.until, self._expire_again)
                return
            self._drop(fd)

    def _expire_again(self) -> None:
        self._timer = None
        self._expire()

    # -- what went wrong --

    def _failed(self, text: str) -> None:
        self._warn_once(
            "a process of this job said at its control socket what can't be understood, and was sent away", text
        )

    def _warn_once(self, kind: str, more: str = "") -> None:
        if kind not in self._warned:
            self._warned.add(kind)
            self._warn(f"warning: {kind}{f': {more:.200}' if more else ''}; this is said once")

    def close(self) -> None:
        for connection in list(self._connections):
            connection.close()
        for fd in list(self._unidentified):
            self._drop(fd)
        if self._timer is not None:
            self._timer.cancel()
        self._loop.forget(self._socket.fileno())
        self._socket.close()
        if self._directory:
            import shutil

            shutil.rmtree(self._directory, ignore_errors=True)


def _is_same_user(sock: socket.socket) -> bool:
    """Whether the other side runs as our user, or as root."""
    peercred = getattr(socket, "SO_PEERCRED", None)
    if peercred is None:
        return True  # the private directory's mode keeps other users out there
    try:
        _pid, user, _group = _CREDENTIALS.unpack(sock.getsockopt(socket.SOL_SOCKET, peercred, _CREDENTIALS.size))
    except OSError:
        return False
    return user in (0, os.geteuid())


def address_of(text: str) -> str:
    """A control socket's address as ``connect`` takes it."""
    return "\0" + text[1:] if text.startswith("@") else text
