"""A file that grows, followed as it does: the system says when there is more of it."""

from __future__ import annotations

import os
import threading

from watchdog.events import FileSystemEvent, FileSystemEventHandler
from watchdog.observers import Observer


class Followed(FileSystemEventHandler):
    """What is in the file ``path``, as it comes. Used in a ``with`` block; :meth:`wait` in one thread."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._more = threading.Event()
        self._at = 0
        self._observer = Observer()

    def on_any_event(self, event: FileSystemEvent) -> None:
        if os.path.basename(os.fsdecode(event.src_path)) == os.path.basename(self._path):
            self._more.set()

    def wake(self) -> None:
        """Has :meth:`wait` return, though there is nothing more; from any thread."""
        self._more.set()

    def read(self) -> bytes:
        """What has come since the last call."""
        try:
            with open(self._path, "rb") as file:
                file.seek(self._at)
                found = file.read()
        except FileNotFoundError:
            return b""
        self._at += len(found)
        return found

    def wait(self, seconds: float) -> bool:
        """Returns when there may be more to read; False: nothing came in so long."""
        came = self._more.wait(seconds)
        self._more.clear()
        return came

    def __enter__(self) -> Followed:
        self._observer.schedule(self, os.path.dirname(self._path))
        self._observer.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._observer.stop()
        self._observer.join()
