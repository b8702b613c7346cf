"""Sends the timeline's events to ``muster local`` as they happen, for the line that it shows of each host.

One JSON array per event, short enough for the pipe to take whole: its name, and those facts that are numbers. Events
are left out, never waited for, where the reader is slow or gone.
"""

import json
import os
from typing import Any, Mapping

FILE = ".events"
"""The name of the pipe, in the directory of the host's ranks' files."""


class EventPipe:
    """The writer's end of the named pipe ``path``; silent where there is none, or nobody reads."""

    def __init__(self, path: str) -> None:
        try:
            self._fd = os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError:
            self._fd = -1

    def send(self, event: str, facts: Mapping[str, Any]) -> None:
        if self._fd < 0:
            return
        numbers = {name: value for name, value in facts.items() if isinstance(value, (int, float))}
        try:
            os.write(self._fd, json.dumps([event, numbers]).encode() + b"\n")
        except BlockingIOError:
            pass
        except OSError:
            os.close(self._fd)
            self._fd = -1
