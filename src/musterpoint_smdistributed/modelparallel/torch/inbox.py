"""What has come for this rank. Who waits for a message reads it from its connection: no other thread has to wake first.

A rank that computes doesn't wake for small messages either; it looks when it has time. On busy cores each thread that
has to wake costs more than what it does. Large messages are read by threads meanwhile, so that senders can go on.
"""

from __future__ import annotations

import queue
import time
from typing import Any, Protocol


class Reader(Protocol):
    """What the inbox needs of the connections. ``waits``: whether :meth:`wait` works here."""

    waits: bool

    def look(self) -> None:
        """Delivers what has come."""

    def wait(self, seconds: float | None) -> None:
        """Waits until something comes, and delivers it; not longer than so many seconds, or until :meth:`wake`."""

    def wake(self) -> None: ...


class Inbox:
    """Messages in the order in which they came. Any thread may put one; one at a time takes them out."""

    def __init__(self) -> None:
        self._items: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._reader: Reader | None = None
        self._is_waiting = False
        self._has_looked = False  # the last time something was asked for, and nothing had come

    def reads(self, reader: Reader) -> None:
        """From now on."""
        self._reader = reader

    def put(self, message: Any) -> None:
        self._items.put(message)
        if self._is_waiting and self._reader is not None:
            self._reader.wake()

    def empty(self) -> bool:
        self._look()
        return self._items.empty()

    def get_nowait(self) -> Any:
        """The next message. Raises queue.Empty."""
        self._has_looked = False
        if self._items.empty():
            self._look()
            self._has_looked = True
        return self._items.get_nowait()

    def get(self, timeout: float | None = None) -> Any:
        """The next message. Raises queue.Empty after so many seconds."""
        if self._reader is None or not self._reader.waits:
            return self._items.get(timeout=timeout)
        until = None if timeout is None else time.monotonic() + timeout
        while True:
            try:
                return self._items.get_nowait() if self._has_looked else self.get_nowait()
            except queue.Empty:
                left = None if until is None else until - time.monotonic()
                if left is not None and left <= 0:
                    raise
            self._is_waiting = True
            try:
                if self._items.empty():  # what is put from now on wakes
                    self._reader.wait(left)
            finally:
                self._is_waiting = False
                self._has_looked = False

    def _look(self) -> None:
        if self._reader is not None and self._reader.waits:
            self._reader.look()
