"""The control_socket: a unix socket at which rank stubs, and launchers that the job runs as its program, report.

Linux' abstract namespace keeps it off the disk, so a read-only root file system is fine and nothing is left behind;
elsewhere it is a file in a private directory. Every process in the same network can connect, so the first thing that
counts is the job's token, which only the job's processes have in their environment; nothing else is read before it.
``_socket`` is what is below ``socket``, which costs 3 ms at import: a job on one host needs no more of it than this.
"""

from __future__ import annotations

import _socket
import os
import sys
from typing import Callable

from musterpoint.loop import READ, Loop, Timer

_ABSTRACT = "linux" in sys.platform
_INT = 4
"""Bytes of C's int, wherever there are such sockets."""
LONGEST_LINE = 4 << 20
"""Bytes: a handed-over plan carries a whole environment; a stub's lines are short."""
TOKEN_BYTES = 16
AT_ONCE = 32
"""Connections that are taken before anything else has its turn, however many there are."""
MOST_STRANGERS = 256
"""Connections that haven't shown the token; one more, and the oldest is closed."""
PATIENCE = 60.0
"""Seconds until one that hasn't is closed."""
HEARING = 5.0
"""Seconds until a connection that doesn't read what it is told is dropped: all else waits meanwhile."""
PAUSE = 0.2
"""Seconds until connections are taken again where there was no descriptor for one."""


class Connection:
    """One connection that has shown the token. ``on_line`` and ``on_gone`` are set by whoever takes it over.

    An exception in either's handling of a line closes this connection, and nothing else.
    """

    __slots__ = ("_buffer", "_failed", "_left", "_loop", "_socket", "on_gone", "on_line")

    def __init__(
        self, loop: Loop, sock: _socket.socket, left: Callable[[Connection], None] = lambda connection: None,
        failed: Callable[[str], None] = lambda text: None,
    ) -> None:  # fmt: skip
        self._loop = loop
        self._socket = sock
        self._left, self._failed = left, failed
        self._buffer = b""
        self.on_line: Callable[[list[str], str], None] = lambda words, line: None
        self.on_gone: Callable[[], None] = lambda: None

    def tell(self, line: str, descriptors: tuple[int, ...] = ()) -> None:
        """Sends a line, with descriptors beside it. A connection that left meanwhile, or doesn't read, is noticed by
        loop.
        """
        data = line.encode() + b"\n"
        if self._socket.fileno() < 0:
            return
        self._socket.settimeout(HEARING)
        try:
            if descriptors:
                numbers = b"".join(fd.to_bytes(_INT, sys.byteorder) for fd in descriptors)
                self._socket.sendmsg([data], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, numbers)])
            else:
                self._socket.sendall(data)
        except OSError:
            self._hang_up()
        self._socket.setblocking(False)

    def _hang_up(self) -> None:
        try:
            self._socket.shutdown(_socket.SHUT_RDWR)
        except OSError:
            pass  # it has left

    def read(self, _ready: int) -> None:
        """Takes what is there. Descriptors that are sent beside it are closed by the system, unasked for."""
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
                self.on_line(text.split(), text)
                if self._socket.fileno() < 0:
                    return
        except Exception as error:
            self._failed(f"{type(error).__name__}: {error}")
            over = True
        if over:
            self.close()
            self.on_gone()

    def close(self) -> None:
        if self._socket.fileno() >= 0:
            self._loop.forget(self._socket.fileno())
            self._socket.close()
            self._left(self)


class ControlSocket:
    """Listens at :attr:`address` (``@name``: abstract). ``greet`` gets every new connection that has shown
    :attr:`token`.

    ``warn`` is told what kind of thing went wrong, once for each.
    """

    def __init__(
        self, loop: Loop, greet: Callable[[Connection], None], warn: Callable[[str], None] = lambda text: None
    ) -> None:
        self._loop = loop
        self._greet, self._warn = greet, warn
        self._warned: set[str] = set()
        self._directory = ""
        self._connections: set[Connection] = set()
        self._strangers: dict[int, _Stranger] = {}
        self._timer: Timer | None = None
        self.token = os.urandom(TOKEN_BYTES).hex()
        self._expected = self.token.encode() + b"\n"
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
        path = os.path.join(self._directory, "control_socket")
        self._socket.bind(path)
        return path

    # -- before the token --

    def _accept(self, _ready: int) -> None:
        """Takes some; the loop comes back for more, after whatever else is to be done."""
        for taken in range(AT_ONCE):
            try:
                fd, _address = self._socket._accept()  # type: ignore[attr-defined]
            except (BlockingIOError, ConnectionAbortedError):
                return
            except OSError as error:
                if not taken:  # after others were taken it may fail though no connection waits
                    self._no_room(error)
                return
            sock = _socket.socket(fileno=fd)
            if not _same_user(sock):
                sock.close()
                self._say_once("a process of another user connected to this job's control socket and was sent away")
                continue
            sock.setblocking(False)
            self._strangers[fd] = _Stranger(sock, self._loop.clock() + PATIENCE)
            self._loop.watch(fd, READ, lambda _ready, fd=fd: self._identify(fd))  # type: ignore[misc]
            if len(self._strangers) > MOST_STRANGERS:
                self._raise_file_limit()
            self._expire()

    def _no_room(self, error: OSError) -> None:
        """Those that show no token make room; else whoever comes waits until there is some."""
        self._say_once(f"the control socket can't take a connection: {error.strerror}; others wait until it can")
        if self._strangers:
            self._raise_file_limit()
            return
        self._loop.forget(self._socket.fileno())
        self._loop.call_later(PAUSE, self._listen_again)

    def _raise_file_limit(self) -> None:
        """Closes the oldest of those that have shown no token, if it shows none now."""
        oldest = next(iter(self._strangers))
        self._identify(oldest)
        if oldest in self._strangers:
            self._turn_away(oldest)

    def _listen_again(self) -> None:
        if self._socket.fileno() >= 0:
            self._loop.watch(self._socket.fileno(), READ, self._accept)

    def _identify(self, fd: int) -> None:
        stranger = self._strangers[fd]
        try:
            stranger.said += (data := stranger.socket.recv(len(self._expected) - len(stranger.said)))
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._turn_away(fd)
        elif len(stranger.said) == len(self._expected) or b"\n" in data:
            # as numbers: how long that takes doesn't tell how much of it is right
            if int.from_bytes(stranger.said, "big") ^ int.from_bytes(self._expected, "big"):
                self._say_once(
                    "a process without this job's token connected to its control socket and was sent away (a "
                    "launcher.py in the job's code must be of the same version as the musterpoint that runs it)"
                )
                self._turn_away(fd)
            else:
                del self._strangers[fd]
                self._admit(stranger.socket)

    def _admit(self, sock: _socket.socket) -> None:
        connection = Connection(self._loop, sock, self._connections.discard, self._failed)
        self._connections.add(connection)
        self._loop.watch(sock.fileno(), READ, connection.read)
        self._greet(connection)

    def _turn_away(self, fd: int) -> None:
        self._loop.forget(fd)
        self._strangers.pop(fd).socket.close()

    def _expire(self) -> None:
        """Closes those whose time is over; the oldest of the others is looked at again when its is."""
        while self._strangers:
            fd, oldest = next(iter(self._strangers.items()))
            if oldest.until > self._loop.clock():
                self._timer = self._timer or self._loop.call_at(oldest.until, self._look_again)
                return
            self._turn_away(fd)

    def _look_again(self) -> None:
        self._timer = None
        self._expire()

    # -- what went wrong --

    def _failed(self, text: str) -> None:
        self._say_once(
            "a process of this job said at its control socket what can't be understood, and was sent away", text
        )

    def _say_once(self, kind: str, more: str = "") -> None:
        if kind not in self._warned:
            self._warned.add(kind)
            self._warn(f"warning: {kind}{f': {more:.200}' if more else ''}; this is said once")

    def close(self) -> None:
        for connection in list(self._connections):
            connection.close()
        for fd in list(self._strangers):
            self._turn_away(fd)
        if self._timer is not None:
            self._timer.cancel()
        self._loop.forget(self._socket.fileno())
        self._socket.close()
        if self._directory:
            import shutil

            shutil.rmtree(self._directory, ignore_errors=True)


class _Stranger:
    """A connection that has shown no token so far: what it said, and until when it is waited for."""

    __slots__ = ("said", "socket", "until")

    def __init__(self, sock: _socket.socket, until: float) -> None:
        self.socket = sock
        self.until = until
        self.said = b""


def _same_user(sock: _socket.socket) -> bool:
    """Whether the peer runs as our user, or as root."""
    peercred = getattr(_socket, "SO_PEERCRED", None)
    if peercred is None:
        return True  # the private directory's mode keeps strangers out there
    try:
        credentials = sock.getsockopt(_socket.SOL_SOCKET, peercred, 3 * _INT)  # pid, uid, gid
    except OSError:
        return False
    return int.from_bytes(credentials[_INT : 2 * _INT], sys.byteorder) in (0, os.geteuid())


def address_of(text: str) -> str:
    """A control_socket's address as ``connect`` takes it."""
    return "\0" + text[1:] if text.startswith("@") else text
