"""The control socket: a unix socket at which rank stubs, launch agents and launches in the program report.

It is a file in a directory that only this user can enter. Where no such directory can be made, as under a read-only
root file system without ``/dev/shm``, it is a name in Linux' abstract namespace. A connection must first send the job's
token, which only the job's processes have in their environment.
"""

from __future__ import annotations

import os
import socket
import sys
from typing import Callable

from musterpoint.base.errors import LauncherError
from musterpoint.base.loop import READ, Loop, Timer
from musterpoint.base.untrusted import same_token
from musterpoint.core.processes.private_folder import (
    MOST_TRIES,
    SOCKET,
    is_same_user,
    private_folder,
    remove,
    remove_dead,
)

LONGEST_LINE = 4 << 20
"""Bytes: an agent's words may be long; a stub's lines are short."""
TOKEN_BYTES = 16
_BEGINS = "control-"
MOST_ACCEPTED = 32
"""Most connections that are accepted in one turn of the loop."""
MOST_UNIDENTIFIED = 256
"""Most connections without the token; for one more, the oldest is closed."""
IDENTIFY_TIMEOUT = 60.0
"""Seconds in which a connection has to send the token."""
SEND_TIMEOUT = 5.0
"""Seconds until a connection that doesn't read is closed; the loop waits meanwhile."""
ACCEPT_PAUSE = 0.2
"""Seconds until connections are accepted again after descriptors ran out."""

OnLine = Callable[[list[str], str], None]
"""Gets the words of a line, and the line."""


class Connection:
    """One connection that has sent the token; :meth:`route_to` sets the receiver of its lines.

    An exception in the handling of a line closes only this connection. ``closed`` is called when it was closed,
    ``failed`` with such an exception's text.
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
        """From now on drops every line; ``on_end`` is still called."""
        self._on_line = lambda words, line: None

    def send(self, line: str, descriptors: tuple[int, ...] = ()) -> None:
        """Sends a line, with descriptors beside it. A connection that has ended or doesn't read is shut down."""
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
        """Reads what was sent. The system closes descriptors that came with it."""
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
    """A connection that hasn't sent the token yet: what it has ``sent``, and ``until`` when it may."""

    __slots__ = ("sent", "socket", "until")

    def __init__(self, sock: socket.socket, until: float) -> None:
        self.socket = sock
        self.until = until
        self.sent = b""


class ControlSocket:
    """Listens at :attr:`address` (``@name``: abstract). ``on_connection`` gets every connection that has sent
    :attr:`token`; ``warn`` gets a sentence for each kind of error, once. ``token``: what this host's processes know
    already; empty: a new one is made.

    Raises:
        LauncherError: there is no directory for the socket.
    """

    def __init__(
        self,
        loop: Loop,
        on_connection: Callable[[Connection], None],
        warn: Callable[[str], None] = lambda text: None,
        token: str = "",
    ) -> None:
        self._loop = loop
        self._on_connection, self._warn = on_connection, warn
        self._warned: set[str] = set()
        self._connections: set[Connection] = set()
        self._unidentified: dict[int, _Unidentified] = {}
        self._timer: Timer | None = None
        self.token = token or os.urandom(TOKEN_BYTES).hex()
        self._expected = self.token.encode() + b"\n"
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.address = self._listen()
        self._socket.setblocking(False)
        loop.watch(self._socket.fileno(), READ, self._accept)

    def _listen(self) -> str:
        name = f"{_BEGINS}{os.getpid()}-{os.urandom(6).hex()}"
        for _ in range(MOST_TRIES):
            try:
                folder = private_folder()
            except LauncherError:
                if "linux" not in sys.platform:
                    raise
                self._socket.bind(f"\0musterpoint-{name}")
                self._socket.listen(4096)
                return f"@musterpoint-{name}"
            path = os.path.join(folder, name)
            try:
                remove_dead(folder, _BEGINS)
                self._socket.bind(path)
                self._socket.listen(4096)
                os.rename(path, path + SOCKET)  # who removes dead sockets doesn't see it before it listens
            except FileNotFoundError:
                continue
            except OSError as error:
                raise LauncherError(f"the control socket can't be made in {folder}: {error.strerror}") from None
            return path + SOCKET
        raise LauncherError(f"the control socket can't be made: {folder} is removed again and again")

    # -- before the token --

    def _accept(self, _ready: int) -> None:
        """Accepts some connections; the loop calls again for more, after other events."""
        for accepted in range(MOST_ACCEPTED):
            try:
                sock, _address = self._socket.accept()
            except (BlockingIOError, ConnectionAbortedError):
                return
            except OSError as error:
                if not accepted:  # a later accept may fail although no connection waits
                    self._no_descriptor(error)
                return
            if not is_same_user(sock):
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
        """Closes an unidentified connection to get its descriptor; without any, stops accepting for a moment."""
        self._warn_once(f"the control socket can't take a connection: {error.strerror}; others wait until it can")
        if self._unidentified:
            self._drop_oldest()
            return
        self._loop.forget(self._socket.fileno())
        self._loop.call_later(ACCEPT_PAUSE, self._accept_again)

    def _drop_oldest(self) -> None:
        """Closes the oldest unidentified connection, unless its token has come by now."""
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
            if not same_token(caller.sent.decode("latin-1"), self._expected.decode("latin-1")):
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
        """Closes connections whose time is over; sets the timer for the next one."""
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
        if not self.address.startswith("@"):
            remove(self.address)


def address_of(text: str) -> str:
    """A control socket's address in the form for ``connect``."""
    return "\0" + text[1:] if text.startswith("@") else text


RETURNS = "/memfd:muster-returns-"
"""How the name of a rank's memory file begins, as ``/proc/<pid>/fd`` has it; the number of the descriptor to write to
follows."""
_RAISED = b"e"


def ask_raised(pid: int, proc: str = "/proc") -> None:
    """Asks a rank (``embedded.startup.stack_dumps``) to tell here whether its main thread has raised; it may not."""
    folder = f"{proc}/{pid}/fd"
    try:
        links = [os.readlink(f"{folder}/{name}") for name in os.listdir(folder)]
        names = [link.removeprefix(RETURNS).partition(" ")[0] for link in links if link.startswith(RETURNS)]
        for name in filter(str.isdecimal, names):
            pipe = os.open(f"{folder}/{name}", os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            try:
                os.write(pipe, _RAISED)
            finally:
                os.close(pipe)
    except OSError:  # it has ended, is another user's, or has been asked too often
        pass
