"""S3 by boto3: the SDK's own chain of credentials, and s3transfer's transfers.

:func:`open_store` chooses between it and the other stores. Runs in a Python that may have no musterpoint.
"""

from __future__ import annotations

import threading
from typing import Any, Callable, Iterable, Iterator

from musterpoint.embedded.programs.aws_client import Aws, code_of, library
from musterpoint.embedded.programs.stores import (
    DirectoryStore,
    FsspecStore,
    Item,
    OnBytes,
    OnDone,
    Store,
    StoreError,
    os_words,
)

PART = 16 * 1024**2
"""Bytes of one part; larger files are transferred in parts."""
REQUESTS = 16
QUEUE = 100
"""Pieces of 256 KiB that wait for the disk, as boto3 has it; s3transfer's own 1,000 hold 250 MiB in memory."""
BATCH = 1000
"""Keys of one request to delete them."""
RIGHTS = {
    "ListObjectsV2": "s3:ListBucket",
    "HeadObject": "s3:GetObject",
    "GetObject": "s3:GetObject",
    "DeleteObjects": "s3:DeleteObject",
}


class S3Store(Store):
    """Everything below a prefix, or one object. ``access``: ``region`` and ``endpoint``, both may be empty.
    ``requests``: how many at a time.
    """

    def __init__(self, uri: str, access: dict[str, Any], requests: int = REQUESTS) -> None:
        self.place = uri
        self._bucket, _, key = uri.removeprefix("s3://").partition("/")
        if not self._bucket:
            raise StoreError(f"{uri} names no bucket: expected s3://BUCKET/PREFIX")
        self._key, self._prefix = key, key if not key or key.endswith("/") else f"{key}/"
        self._is_object: bool | None = False if self._key == self._prefix else None
        self._requests = requests
        self._aws = Aws(access)
        self._errors = self._aws.errors
        self._manager, self._utils = library("s3transfer.manager"), library("s3transfer.utils")
        self._subscriber = library("s3transfer.subscribers").BaseSubscriber
        try:
            self._client = self._aws.client("s3", requests + 2, connect_timeout=10, read_timeout=60)
        except Exception as error:  # a wrong profile or endpoint
            raise self.explain(error) from None
        self._has_answered = False
        self._client.meta.events.register("after-call.s3", self._answered)
        self._threads: Any = None
        self._futures: dict[int, Any] = {}
        self._lock = threading.Lock()
        self._count = 0

    def _answered(self, **_: Any) -> None:
        """S3 has answered a request, be it with a refusal."""
        self._has_answered = True

    # -- small things --

    def items(self) -> Iterator[Item]:
        if self._is_object is None:
            found = self.item("")
            self._is_object = found is not None
            if found is not None:
                yield found
                return
        elif self._is_object:
            again = self.item("")
            if again is not None:
                yield again
            return
        try:
            pages = self._client.get_paginator("list_objects_v2").paginate(Bucket=self._bucket, Prefix=self._prefix)
            for page in pages:
                for each in page.get("Contents", ()):
                    name = each["Key"][len(self._prefix) :]
                    if name and not name.endswith("/"):  # a console's mark of a folder
                        yield Item(name, each["Size"], each["ETag"])
        except Exception as error:
            raise self.explain(error, self._prefix) from None

    def item(self, name: str) -> Item | None:
        """``name`` empty: the object that the URI names, under its own name."""
        key = self._of(name) if name else self._key
        try:
            found = self._client.head_object(Bucket=self._bucket, Key=key)
        except self._errors.ClientError as error:
            if code_of(error) in ("404", "NoSuchKey", "NotFound"):
                return None
            if code_of(error) not in ("403", "AccessDenied"):
                raise self.explain(error, key) from None
            if not name:
                return None  # who may list and not see a key that isn't there is told the same
            raise self.refusal(name) from None
        except Exception as error:
            raise self.explain(error, key) from None
        return Item(name or key.rpartition("/")[2], found["ContentLength"], found["ETag"])

    def refusal(self, name: str) -> StoreError:
        """Asks for the object itself: answers to HEAD have no words, and know no bucket."""
        try:
            self._client.get_object(Bucket=self._bucket, Key=self._of(name), Range="bytes=0-0")["Body"].close()
        except Exception as error:
            return self.explain(error, self._of(name))
        return super().refusal(name)

    def _of(self, name: str) -> str:
        return self._key if self._is_object else self._prefix + name

    def read(self, name: str) -> bytes | None:
        key = self._prefix + name if name else self._key
        try:
            return bytes(self._client.get_object(Bucket=self._bucket, Key=key)["Body"].read())
        except Exception as error:
            found = self.explain(error, key)
            if found.missing and not code_of(error).endswith("Bucket"):
                return None
            raise found from None

    def write(self, name: str, data: bytes) -> None:
        key = self._prefix + name
        try:
            self._client.put_object(Bucket=self._bucket, Key=key, Body=data)
        except Exception as error:
            raise self.explain(error, key) from None

    def create(self, name: str, data: bytes) -> bool:
        key = self._prefix + name
        try:
            self._client.put_object(Bucket=self._bucket, Key=key, Body=data, IfNoneMatch="*")
        except Exception as error:
            if code_of(error) in ("PreconditionFailed", "412", "ConditionalRequestConflict", "409"):
                return False
            raise self.explain(error, key) from None
        return True

    def delete(self, names: Iterable[str]) -> None:
        keys = [{"Key": self._prefix + name} for name in names]
        try:
            for at in range(0, len(keys), BATCH):
                batch = {"Objects": keys[at : at + BATCH], "Quiet": True}
                answer = self._client.delete_objects(Bucket=self._bucket, Delete=batch)
                for refused in answer.get("Errors", ()):
                    words = f"{refused.get('Key')}: {refused.get('Code')}: {refused.get('Message')}"
                    raise StoreError(f"it can't be deleted from {self.place}: {words}")
        except Exception as error:
            raise self.explain(error, self._prefix) from None

    def stream(self, item: Item, at: int = 0) -> Iterator[bytes]:
        key, rest = self._of(item.name), {"Range": f"bytes={at}-"} if at else {}
        try:
            answer = self._client.get_object(Bucket=self._bucket, Key=key, IfMatch=item.tag, **rest)
            yield from answer["Body"].iter_chunks(1 << 20)
        except Exception as error:
            raise self.explain(error, key) from None

    # -- transfers --

    def fetch(self, item: Item, path: str, on_bytes: OnBytes, on_done: OnDone) -> None:
        key = self._of(item.name)
        self._begin(
            lambda by, told: by.download(self._bucket, key, path, subscribers=told), key, on_bytes, on_done, item
        )

    def send(self, path: str, name: str, on_bytes: OnBytes, on_done: OnDone) -> None:
        key = self._prefix + name
        self._begin(lambda by, told: by.upload(path, self._bucket, key, subscribers=told), key, on_bytes, on_done, None)

    def _begin(
        self, begin: Callable[[Any, list[Any]], Any], key: str, on_bytes: OnBytes, on_done: OnDone, item: Item | None
    ) -> None:
        with self._lock:
            self._count += 1
            number, manager = self._count, self._manager_of_threads()

        def over(error: BaseException | None) -> None:
            with self._lock:
                self._futures.pop(number, None)
            on_done(None if error is None else self.explain(error, key))

        try:
            future = begin(manager, [self._listener(on_bytes, over, item)])
        except Exception as error:
            over(error)
            return
        with self._lock:
            if not future.done():
                self._futures[number] = future

    def cancel(self) -> None:
        with self._lock:
            futures = list(self._futures.values())
        for future in futures:
            future.cancel()

    def _manager_of_threads(self) -> Any:
        """What begins a transfer."""
        if self._threads is None:
            config = self._manager.TransferConfig(
                multipart_threshold=PART,
                multipart_chunksize=PART,
                max_request_concurrency=self._requests,
                max_io_queue_size=QUEUE,
            )
            self._threads = self._manager.TransferManager(self._client, config, _file_access(self._utils))
        return self._threads

    def _listener(self, on_bytes: OnBytes, over: Callable[[BaseException | None], None], item: Item | None) -> Any:
        class Listener(self._subscriber):  # type: ignore[name-defined, misc]
            def on_queued(self, future: Any, **_: Any) -> None:
                if item is not None and item.tag and hasattr(future.meta, "provide_object_etag"):
                    future.meta.provide_transfer_size(item.size)  # spares a request; asks If-Match
                    future.meta.provide_object_etag(item.tag)

            def on_progress(self, future: Any, bytes_transferred: int, **_: Any) -> None:
                on_bytes(bytes_transferred)

            def on_done(self, future: Any, **_: Any) -> None:
                try:
                    future.result()
                except BaseException as error:
                    over(error)
                else:
                    over(None)

        return Listener()

    # -- what went wrong --

    def explain(self, error: BaseException, key: str = "") -> StoreError:
        if isinstance(error, StoreError):
            return error
        found = self._explained(error, f"s3://{self._bucket}/{key}" if key else self.place)
        found.kind = found.kind or (code_of(error) if getattr(error, "response", None) else type(error).__name__)
        found.unreachable = found.unreachable and not self._has_answered
        return found

    def _explained(self, error: BaseException, where: str) -> StoreError:
        takes = ""
        if isinstance(error, self._errors.ClientError):
            if (missing := self._missing(error, where)) is not None:
                return missing
            takes = f"{RIGHTS.get(error.operation_name, 's3:PutObject')}, and the object's KMS key if it has one"
        if isinstance(error, OSError) and not isinstance(error, self._errors.BotoCoreError):
            return StoreError(os_words(error), local=True)
        if type(error).__name__ == "S3DownloadFailedError":  # s3transfer's name for a refused If-Match
            return StoreError(f"{where} was replaced by another object while it was being read", passing=True)
        if type(error).__name__ in ("S3UploadFailedError", "RetriesExceededError") and error.args:
            last = getattr(error, "last_exception", None)
            if last is not None:
                return self.explain(last, where.removeprefix(f"s3://{self._bucket}/"))
        return self._aws.explain(error, where, takes)

    def _missing(self, error: Any, where: str) -> StoreError | None:
        """For what isn't there, or isn't there any more."""
        code = code_of(error)
        if code == "NoSuchBucket":
            return StoreError(f"there is no bucket {self._bucket!r} ({where})", missing=True)
        if code in ("NoSuchKey", "404", "NotFound"):
            return StoreError(f"there is no object {where}", missing=True)
        if code in ("PreconditionFailed", "412"):
            return StoreError(f"{where} was replaced by another object while it was being read", passing=True)
        return None


def _file_access(utils: Any) -> Any:
    """s3transfer's file access; a file that becomes shorter fails at once, instead of S3 waiting for the rest.

    ``utils``: ``s3transfer.utils``.
    """

    class Chunk(utils.ReadFileChunk):  # type: ignore[misc]
        def read(self, amount: Any = None) -> Any:
            data = super().read(amount)
            if not data and amount != 0 and self.tell() < len(self):
                raise OSError(f"{getattr(self._fileobj, 'name', 'it')} became shorter")
            return data

    class Files(utils.OSUtils):  # type: ignore[misc]
        def open_file_chunk_reader_from_fileobj(
            self, fileobj: Any, chunk_size: int, full_file_size: int, callbacks: Any, close_callbacks: Any = None
        ) -> Any:
            return Chunk(fileobj, chunk_size, full_file_size, callbacks, False, close_callbacks)

    return Files()


def open_store(uri: str, access: dict[str, Any]) -> Store:
    """The store at ``uri``. ``access``: ``region`` and ``endpoint`` of S3, both may be empty.

    Raises:
        Lacks: this Python has no library for it.
        StoreError: it can't be opened.
    """
    if uri.startswith("s3://"):
        return S3Store(uri, access)
    if "://" not in uri:
        return DirectoryStore(uri)
    return FsspecStore(uri)
