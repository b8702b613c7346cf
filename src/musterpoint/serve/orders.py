"""What the server tells a running job: a line of JSON each, through a named pipe in the job's directory.

The pipe outlives the server, so a new one reaches the jobs that its predecessor started.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import threading
from typing import Any, Callable, Mapping

PIPE = "orders"


class NotRunning(Exception):
    """No process of the job reads the pipe."""


def send(directory: str, order: Mapping[str, Any]) -> None:
    """Sends ``order`` to the job in ``directory``.

    Raises:
        NotRunning: nobody is there to take it.
    """
    line = (json.dumps(order) + "\n").encode()
    try:
        pipe = os.open(os.path.join(directory, PIPE), os.O_WRONLY | os.O_NONBLOCK)
    except OSError as error:
        if error.errno in (errno.ENXIO, errno.ENOENT):
            raise NotRunning(directory) from None
        raise
    with open(pipe, "wb", buffering=0) as file:
        file.write(line)


def prepare(directory: str) -> None:
    """Makes the pipe, before the job's process is started."""
    with contextlib.suppress(FileExistsError):
        os.mkfifo(os.path.join(directory, PIPE), 0o600)


class Orders:
    """The reading end. ``taken`` is called with each order, in a thread of its own."""

    def __init__(self, directory: str, taken: Callable[[dict[str, Any]], None]) -> None:
        # for writing too: the end of one writer is then no end of the pipe
        self._pipe = os.open(os.path.join(directory, PIPE), os.O_RDWR)
        self._taken = taken
        self._thread = threading.Thread(target=self._read, name="orders", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def _read(self) -> None:
        with open(self._pipe, encoding="utf-8", closefd=False) as lines:
            for line in iter(lines.readline, ""):
                self._taken(json.loads(line))
