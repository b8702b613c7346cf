"""How the server hears that something of a job has changed: its name, through a named pipe in the data directory.

The state itself is in the file; what comes through the pipe only says where to look. Nobody waits for a reader.
"""

from __future__ import annotations

import contextlib
import os
import threading
from typing import Callable

PIPE = "notices"


def send(data: str, name: str) -> None:
    """Says that ``name`` has changed, to the server of ``data`` if there is one."""
    with contextlib.suppress(OSError):
        pipe = os.open(os.path.join(data, PIPE), os.O_WRONLY | os.O_NONBLOCK)
        with open(pipe, "wb", buffering=0) as file:
            file.write(f"{name}\n".encode())


class Notices:
    """The reading end: listeners are called with each name, in one thread."""

    def __init__(self, data: str) -> None:
        path = os.path.join(data, PIPE)
        with contextlib.suppress(FileExistsError):
            os.mkfifo(path, 0o600)
        self._pipe = os.open(path, os.O_RDWR)
        self._data = data
        self._listeners: list[Callable[[str], None]] = []
        self._thread = threading.Thread(target=self._read, name="notices", daemon=True)

    def listen(self, listener: Callable[[str], None]) -> Callable[[], None]:
        """Calls ``listener`` from now on, until what is returned is called."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    def start(self) -> None:
        self._thread.start()

    def send(self, name: str) -> None:
        send(self._data, name)

    def _read(self) -> None:
        with open(self._pipe, encoding="utf-8", closefd=False) as lines:
            for line in iter(lines.readline, ""):
                for listener in list(self._listeners):
                    listener(line.rstrip("\n"))
