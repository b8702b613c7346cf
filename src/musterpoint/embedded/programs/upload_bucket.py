"""Uploads to S3, several at once, in the background. Runs in a Python that has boto3, without musterpoint.

Memory is bounded: files are streamed from the disk, large ones in parts.
"""

from __future__ import annotations

import importlib
from typing import Any, Callable

from musterpoint.embedded.programs.aws_reader import brief, is_transient, sentence
from musterpoint.embedded.programs.s3_files import file_access

PART = 16 * 1024**2
"""Bytes of one part; larger files are uploaded in parts."""
REQUESTS = 8
TRIES = 3
"""Tries of one request before its upload has failed."""

Problem = tuple[str, str, bool]
"""The kind of a failure, its description, and whether a retry may help."""


class Bucket:
    """Keys are ``prefix`` and a relative path. ``done`` gets path and error (None: uploaded), in another thread.

    ``sent``: bytes sent so far, by path of each running upload.
    """

    def __init__(self, bucket: str, prefix: str, region: str, endpoint: str, done: Callable[[str, Any], None]) -> None:
        configuration = importlib.import_module("botocore.config")
        manager, utils = importlib.import_module("s3transfer.manager"), importlib.import_module("s3transfer.utils")
        self._errors = importlib.import_module("botocore.exceptions")
        self._bucket, self._prefix, self._done = bucket, prefix, done
        self.sent: dict[str, int] = {}
        config = configuration.Config(
            connect_timeout=10,
            read_timeout=60,
            max_pool_connections=REQUESTS,
            retries={"mode": "standard", "total_max_attempts": TRIES},
        )
        more = {"endpoint_url": endpoint} if endpoint else {}
        client = importlib.import_module("boto3").client("s3", region_name=region or None, config=config, **more)
        transfers = manager.TransferConfig(
            multipart_threshold=PART, multipart_chunksize=PART, max_request_concurrency=REQUESTS
        )
        self._manager = manager.TransferManager(client, transfers, file_access(utils))
        self._subscriber = importlib.import_module("s3transfer.subscribers").BaseSubscriber
        self._futures: dict[str, Any] = {}

    def upload(self, path: str, file: str) -> None:
        """Begins to upload ``file``."""
        self.sent[path] = 0
        key = f"{self._prefix}/{path}"
        self._futures[path] = self._manager.upload(file, self._bucket, key, subscribers=[self._listener(path)])

    def forget(self, path: str) -> None:
        """Drops the record of an upload that has ended."""
        self.sent.pop(path, None)
        self._futures.pop(path, None)

    def cancel(self) -> None:
        """Cancels the running uploads; parts that have begun still end."""
        for future in list(self._futures.values()):
            future.cancel()

    def _listener(self, path: str) -> Any:
        bucket = self

        class Listener(self._subscriber):  # type: ignore[name-defined, misc]
            def on_progress(self, future: Any, bytes_transferred: int, **_: Any) -> None:
                bucket.sent[path] = bucket.sent.get(path, 0) + bytes_transferred

            def on_done(self, future: Any, **_: Any) -> None:
                try:
                    future.result()
                except BaseException as error:
                    bucket._done(path, error)
                else:
                    bucket._done(path, None)

        return Listener()

    def explain(self, error: Any) -> Problem:
        """What failed; a failure of the file itself is of the kind ``file``."""
        errors = self._errors
        if isinstance(error, errors.ClientError):
            kind = str(error.response.get("Error", {}).get("Code", "?"))
        elif isinstance(error, (errors.BotoCoreError, errors.HTTPClientError)):
            kind = type(error).__name__
        elif isinstance(error, OSError):
            return "file", f"it can't be read: {error.strerror or error}", False
        else:
            return type(error).__name__, f"{type(error).__name__}: {brief(error)}", False
        words = sentence(error, errors, {"action": "put", "bucket": self._bucket})
        return kind, words, is_transient(error, errors) or isinstance(error, errors.ConnectionError)
