"""Ports for tests that no other test takes, in another worker of this run or in another run on this machine."""

from __future__ import annotations

import contextlib
import fcntl
import os
import socket
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from musterpoint.core.ports import Ports, any_free

# One byte of this file stands for each port; the lock on it is gone when this process ends.
_TAKEN = os.open(Path(tempfile.gettempdir(), f"muster-test-ports-{os.getuid()}"), os.O_RDWR | os.O_CREAT, 0o600)
_mine: set[int] = set()


@contextlib.contextmanager
def default_port_taken() -> Iterator[None]:
    """Somebody listens on 7777 meanwhile."""
    with socket.socket() as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # connections of the last test may linger
        try:
            sock.bind(("0.0.0.0", 7777))
            sock.listen()
        except OSError:
            pass  # somebody else has it, which is as good
        yield


def unheld(free: Callable[[int], bool] | None = None) -> Ports:
    """Ports that are held from nobody: hosts of a test may be threads of one process."""
    return Ports(free, lambda _name: None)


def free_port() -> int:
    """A port that nobody listens on, below those that the system gives to connections, and this process's alone."""
    while True:
        port = any_free()
        if port in _mine:
            continue
        try:
            fcntl.lockf(_TAKEN, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, port)
        except OSError:
            continue
        _mine.add(port)
        return port
