"""The ports of this host that a job holds, and free ones that it may offer."""

from __future__ import annotations

import errno
import os
import socket
import struct
import sys
from typing import Callable, Collection, Iterable, Iterator

from musterpoint.base.errors import UsageError

_FIRST_PORT, _LAST_PORT = 20000, 32000
_TAKEN = {errno.EADDRINUSE, errno.EACCES}
_HOLD = "\0musterpoint-port-"
_ASKED = 4096
"""How many jobs may ask who holds a port: each one's connection stays in the queue, since nobody accepts it."""


class Ports:
    """The ports of this host that are held for this process's job.

    A port is offered to other hosts and ranks long before a server listens on it. Until then it is held by its number,
    so that no other job of musterpoint on this host (in the same network namespace) takes it: by an abstract unix
    socket, which one process can have, and which is gone when that ends. A port that a process above this one holds is
    lent to this job: ``muster local`` holds those of its hosts. Elsewhere than on Linux nothing is held.

    Tests replace ``free``, whether nobody listens on a port, and ``named``, which makes the socket of a name.
    """

    def __init__(
        self, free: Callable[[int], bool] | None = None, named: Callable[[str], socket.socket | None] | None = None
    ) -> None:
        self._is_free, self._named = free or is_free, named or _socket
        self._held: dict[int, socket.socket | None] = {}
        self._holders: dict[int, int | None] = {}

    def take(self, port: int) -> bool:
        """Holds ``port`` if it is valid, nobody listens on it and no other job holds it; whether it does."""
        known = port in self._held
        if not self.hold(port):
            return False
        if not self._is_free(port):
            if not known:
                self._let_go(port)
            return False
        return True

    def take_any(self) -> int:
        """Holds a port that the system will not give to a connection.

        It lies below the range from which systems take the local ports of connections (Linux: 32768 on).
        """
        while True:
            port = _FIRST_PORT + int.from_bytes(os.urandom(2), "big") % (_LAST_PORT - _FIRST_PORT)
            if port not in self._held and self.take(port):
                return port

    def hold(self, port: int) -> bool:
        """Holds ``port``, whether or not somebody listens on it; False if another job holds it."""
        if port in self._held:
            return True
        if not 0 < port <= 65535:
            return False
        name = f"{_HOLD}{port}"
        while True:
            try:
                self._held[port] = self._named(name)
                return True
            except OSError as error:
                if error.errno != errno.EADDRINUSE:
                    self._held[port] = None  # a system without such sockets
                    return True
            holder = _holder(name)
            if holder is None or holder not in _above(os.getpid()):
                self._holders[port] = holder
                return False
            name += f"-below-{holder}"  # it is lent to one job below that process

    def who_has(self, port: int) -> str:
        """A clause that says who has ``port``, which couldn't be taken."""
        holder = self._holders.get(port)
        if holder:
            return f"port {port} is held by another job on this host, process {holder} ({_command(holder)})"
        if holder is not None:
            return f"port {port} is held by another job of this machine"
        if port > 65535:
            return f"port {port} is none: the last one is 65535"
        return f"something listens on port {port} here (`ss -ltnp sport = :{port}` shows the process)"

    def keep(self, ports: Collection[int]) -> None:
        """Lets all go but ``ports``."""
        for port in [port for port in self._held if port not in ports]:
            self._let_go(port)

    def _let_go(self, port: int) -> None:
        hold = self._held.pop(port)
        if hold is not None:
            hold.close()

    def __enter__(self) -> Ports:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.keep(())


def _socket(name: str) -> socket.socket | None:
    """A listening unix socket of the abstract ``name``; None where the system has none."""
    if sys.platform != "linux":
        return None
    hold = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        hold.bind(name)
        hold.listen(_ASKED)  # the kernel notes whose socket it is
    except BaseException:
        hold.close()
        raise
    return hold


def _holder(name: str) -> int | None:
    """The process that holds ``name``; 0: one that can't be seen from here. None: nobody does."""
    if sys.platform != "linux":
        return None
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as caller:
        caller.setblocking(False)
        try:
            caller.connect(name)
        except ConnectionRefusedError:
            return None
        except OSError:
            return 0
        credentials = caller.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    pid: int = struct.unpack("3i", credentials)[0]
    return pid


def _above(pid: int) -> Iterator[int]:
    """The processes above ``pid``, the nearest first."""
    while pid > 1:
        try:
            with open(f"/proc/{pid}/stat", "rb") as file:
                pid = int(file.read().rpartition(b")")[2].split()[1])
        except (OSError, ValueError, IndexError):
            return
        if pid > 0:
            yield pid


def _command(pid: int) -> str:
    """The name of a process's command."""
    try:
        with open(f"/proc/{pid}/comm", encoding="utf-8", errors="replace") as file:
            return file.read().strip()
    except OSError:
        return "unknown"


def offered(wanted: Iterable[int], ports: Ports, insisted: str = "") -> tuple[int, ...]:
    """One free port for each in ``wanted``, held: that port if it can be had, else any (0: any).

    ``insisted``: why the wanted ports can't be replaced; empty if they can.

    Raises:
        UsageError: a port that can't be replaced is taken.
    """
    found: list[int] = []
    for port in wanted:
        if insisted and not ports.take(port):
            raise UsageError(
                f"{insisted}: {ports.who_has(port)}; pass a --tf-port that is free on every host, or leave it out, "
                "so that the roll call finds free ones"
            )
        found.append(port if port and port not in found and ports.take(port) else ports.take_any())
    return tuple(found)


def is_free(port: int) -> bool:
    """Whether ``port`` is valid and can be bound on every address of this host."""
    if port > 65535:
        return False
    for family in (socket.AF_INET6, socket.AF_INET):
        try:
            _bind(family, port)
        except OSError as error:
            if sys.platform == "win32" or error.errno in _TAKEN:
                return False
    return True


def _bind(family: int, port: int) -> None:
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        if sys.platform != "win32":
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        sock.bind(("", port))
    finally:
        sock.close()


def any_free() -> int:
    """A port that is free now, as :meth:`Ports.take_any` finds it; nobody holds it for the caller."""
    with Ports() as ports:
        return ports.take_any()
