"""A place on S3 that takes files in the background. Runs in a Python that has boto3, without musterpoint."""

from __future__ import annotations

from typing import Any, Callable

from musterpoint.embedded.programs.store_s3 import S3Store
from musterpoint.embedded.programs.stores import StoreError

REQUESTS = 8
"""At a time, beside the ranks."""


class Bucket:
    """Keys are those of ``uri``, and a relative path. ``access``: ``region`` and ``endpoint``, both may be empty.
    ``done`` gets path and error (None: uploaded), in another thread.

    ``sent``: bytes sent so far, by path of each running upload.
    """

    def __init__(self, uri: str, access: dict[str, Any], done: Callable[[str, StoreError | None], None]) -> None:
        self._store = S3Store(uri, access, REQUESTS)
        self._done = done
        self.sent: dict[str, int] = {}

    def upload(self, path: str, file: str) -> None:
        """Begins to upload ``file``."""
        self.sent[path] = 0

        def on_bytes(amount: int) -> None:
            self.sent[path] = self.sent.get(path, 0) + amount

        def on_done(error: Any) -> None:
            self._done(path, error)

        self._store.send(file, path, on_bytes, on_done)

    def forget(self, path: str) -> None:
        """Drops the record of an upload that has ended."""
        self.sent.pop(path, None)

    def cancel(self) -> None:
        """Cancels the running uploads; parts that have begun still end."""
        self._store.cancel()
