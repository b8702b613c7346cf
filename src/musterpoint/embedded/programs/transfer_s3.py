"""S3 as a store of files, by boto3 and its own library s3transfer; and what every store has in common.

What is refused becomes a sentence with the identity, the object and the right that it takes. Runs in a Python that may
not have musterpoint.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import importlib
import os
import threading
from typing import Any, BinaryIO, Callable, Iterable, Iterator, NamedTuple

UNKNOWN = -1
"""The size of a file whose store doesn't tell it."""
PART = 16 * 1024**2
"""Bytes of one part; larger files are transferred in parts."""
REQUESTS = 16
QUEUE = 100
"""Pieces of 256 KiB that wait for the disk, as boto3 has it; s3transfer's own 1,000 hold 250 MiB in memory."""
BATCH = 1000
"""Keys of one request to delete them."""
TRIES = 4
"""Tries of one request before it has failed."""
IDENTITY_SECONDS = 3
RIGHTS = {
    "ListObjectsV2": "s3:ListBucket",
    "HeadObject": "s3:GetObject",
    "GetObject": "s3:GetObject",
    "DeleteObjects": "s3:DeleteObject",
}
TRANSIENT = (
    "SlowDown", "RequestTimeout", "RequestTimeTooSkewed", "Throttling", "ThrottlingException", "InternalError",
    "ServiceUnavailable", "TooManyRequests", "500", "503",
    "NoSuchUpload",  # one in parts that was ended meanwhile begins anew
)  # fmt: skip
DENIED = (
    "AccessDenied", "403", "AccessDeniedException", "InvalidAccessKeyId", "SignatureDoesNotMatch", "ExpiredToken",
    "InvalidToken", "Forbidden",
)  # fmt: skip
ABSENT = ("404", "NoSuchKey", "NotFound")
REPLACED = ("PreconditionFailed", "412")
TAKEN = (*REPLACED, "ConditionalRequestConflict", "409")

OnBytes = Callable[[int], None]
"""Gets the bytes that have just been moved; it raises where the transfer is to end."""


class Item(NamedTuple):
    """A file of a store: its name below the store's place, and its bytes, or :data:`UNKNOWN`. ``tag`` changes with the
    content.
    """

    name: str
    size: int
    tag: str


class Lacks(Exception):
    """This Python lacks a library; ``str(error)`` names it."""


class StoreError(Exception):
    """A store refused something, as a sentence. ``passing``: trying again may help. ``missing``: it isn't there.

    ``local``: this host's file or disk failed, not the store. ``kind``: a short name, to count the same ones.
    ``unreachable``: its address isn't known, or nothing listens there, and nothing has ever answered there.
    """

    kind = ""
    unreachable = False

    def __init__(self, sentence: str, passing: bool = False, missing: bool = False, local: bool = False) -> None:
        super().__init__(sentence)
        self.passing, self.missing, self.local = passing, missing, local


class Again(Exception):
    """A file was moved, and must be moved again: the text says why."""


class Store:
    """``place`` is the URI, for people. ``at_once``: how many files are moved at a time. Every call may come from any
    thread, and raises a StoreError where it fails.
    """

    place = ""
    at_once = 8

    def items(self, begin: str = "") -> Iterator[Item]:
        """Every file, in no order. A place that is one file has one item, with that file's own name.

        ``begin``: a store may leave out those whose names don't begin so.
        """
        raise NotImplementedError

    def item(self, name: str) -> Item | None:
        """One file; None: it isn't there."""
        raise NotImplementedError

    def open(self, name: str) -> Any:
        """The content of a file, to be read."""
        raise NotImplementedError

    def get(self, item: Item, path: str, on_bytes: OnBytes) -> None:
        """Brings this version of ``item`` to the file ``path``."""
        raise NotImplementedError

    def put(self, file: BinaryIO, name: str, on_bytes: OnBytes) -> None:
        """Sends an open file, from its beginning. It is seen under ``name`` once it is whole, where the store can."""
        raise NotImplementedError

    def write(self, name: str, data: bytes, only_new: bool = False) -> bool:
        """Makes or replaces a small file, in one step where the store can. ``only_new``: False where there is one of
        that name; a store that can't tell replaces it.
        """
        raise NotImplementedError

    def delete(self, names: Iterable[str]) -> None:
        """Removes files; one that isn't there is no error."""
        raise NotImplementedError

    def cancel(self) -> None:
        """Ends what other threads have begun, as soon as that can be."""

    def read(self, name: str) -> bytes | None:
        """A small file's content; None: it isn't there."""
        try:
            with self.explained(name), contextlib.closing(self.open(name)) as file:
                return bytes(file.read())
        except StoreError as error:
            if error.missing and error.kind != "NoSuchBucket":
                return None
            raise

    @contextlib.contextmanager
    def explained(self, name: str = "") -> Iterator[None]:
        """Any failure inside, which is about the file ``name``, becomes a StoreError."""
        try:
            yield
        except (StoreError, Lacks, Again):
            raise
        except Exception as error:
            raise self.explain(error, name) from None

    def explain(self, error: Exception, name: str = "") -> StoreError:
        """``error`` as a sentence."""
        if isinstance(error, OSError):
            passing = error.errno in (errno.EIO, errno.ESTALE, errno.ETIMEDOUT, errno.EAGAIN, errno.ECONNRESET)
            return StoreError(os_words(error), passing, isinstance(error, (FileNotFoundError, NotADirectoryError)))
        return StoreError(f"{type(error).__name__}: {brief(error)}", passing=True)


def os_words(error: OSError) -> str:
    words = error.strerror or str(error)
    return f"{error.filename}: {words}" if error.filename else words


def brief(error: BaseException) -> str:
    """The message on one line."""
    return " ".join(str(error).split())[:300]


def library(name: str, extra: str = "") -> Any:
    """A module of a library. ``extra``: the name of what is lacking where boto3's own libraries aren't here.

    Raises:
        Lacks: this Python has none.
    """
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise Lacks(extra if error.name in ("boto3", "botocore", "s3transfer") else error.name or name) from None


class Aws:
    """The SDK's own chain of credentials. ``access``: ``region`` and ``endpoint``, both may be empty.

    ``errors``: botocore's.

    Raises:
        Lacks: this Python has no boto3.
    """

    def __init__(self, access: dict[str, Any]) -> None:
        self._access, self._who = access, ""
        self._boto3 = library("boto3", "boto3")
        self.errors = library("botocore.exceptions", "boto3")

    def client(self, service: str, connections: int = 10, tries: int = TRIES, **times: Any) -> Any:
        """A client of ``service``. Raises whatever a wrong profile or endpoint does."""
        config = importlib.import_module("botocore.config").Config(
            max_pool_connections=connections, retries={"mode": "standard", "total_max_attempts": tries}, **times
        )
        more = {"endpoint_url": self._access["endpoint"]} if self._access.get("endpoint") else {}
        return self._boto3.client(service, region_name=self._access.get("region") or None, config=config, **more)

    def explain(self, error: BaseException, where: str, takes: str) -> StoreError:
        """A failure at ``where``; ``takes``: the rights that the request needs, for example "s3:GetObject"."""
        errors = self.errors
        if isinstance(error, (errors.NoCredentialsError, errors.PartialCredentialsError)):
            return StoreError(
                f"{where}: there are no AWS credentials on this host: give the job a role, or set AWS_ACCESS_KEY_ID "
                "and its like"
            )
        if isinstance(error, errors.NoRegionError):
            return StoreError(f"{where}: no AWS region is known: set AWS_REGION")
        if isinstance(error, errors.ClientError):
            status, code = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0), code_of(error)
            if code in DENIED:
                words = error.response.get("Error", {}).get("Message", "")
                return StoreError(f"{where} was refused to {self._identity()} ({code}: {words}): it takes {takes}")
            return StoreError(f"{where}: {brief(error)}", status >= 500 or status == 429 or code in TRANSIENT)
        absent = (errors.EndpointConnectionError, errors.ConnectTimeoutError, errors.ProxyConnectionError)
        if isinstance(error, (errors.HTTPClientError, *absent)):
            found = StoreError(f"{where}: {brief(error)}; has this host a network?", passing=True)
            found.unreachable = isinstance(error, absent)
            return found
        if not isinstance(error, (errors.BotoCoreError, OSError, ValueError)) and "Cancel" not in str(type(error)):
            # the libraries fail by whatever an answer lacks that was cut off
            what = f"{type(error).__name__}: {brief(error)}"
            return StoreError(f"{where}: the answer can't be read ({what})", passing=True)
        cut = (errors.IncompleteReadError, errors.ConnectionError, *_errors_of_checksums(errors))
        return StoreError(f"{where}: {brief(error)}", isinstance(error, cut) or "Cancel" in str(type(error)))

    def _identity(self) -> str:
        """Who we are to AWS, for a message; asked once."""
        self._who = self._who or self._asked_identity()
        return self._who

    def _asked_identity(self) -> str:
        try:
            times = {"connect_timeout": IDENTITY_SECONDS, "read_timeout": IDENTITY_SECONDS}
            found = self.client("sts", 1, 1, **times).get_caller_identity().get("Arn", "")
            if found:
                return str(found)
        except Exception:
            pass  # no network to STS, or an S3 of others, which has none
        try:
            credentials = self._boto3.Session().get_credentials()
            return f"the access key ...{credentials.access_key[-4:]} (from {credentials.method})"
        except Exception:
            return "these credentials"


def _errors_of_checksums(errors: Any) -> tuple[Any, ...]:
    """Types of botocore's errors for a body that isn't what its checksum says; a botocore of old has none."""
    return (errors.FlexibleChecksumError,) if hasattr(errors, "FlexibleChecksumError") else ()


def code_of(error: Any) -> str:
    """AWS's short name of what it refused; "?": it wasn't AWS. botocore's errors of HTTP have no response, or None."""
    return str((getattr(error, "response", None) or {}).get("Error", {}).get("Code", "?"))


class S3Store(Store):
    """Everything below a prefix, or one object. ``access``: ``region`` and ``endpoint``, both may be empty.
    ``requests``: how many at a time.
    """

    at_once = 64

    def __init__(self, uri: str, access: dict[str, Any], requests: int = REQUESTS) -> None:
        self.place = uri
        self._bucket, _, self._key = uri.removeprefix("s3://").partition("/")
        if not self._bucket:
            raise StoreError(f"{uri} names no bucket: expected s3://BUCKET/PREFIX")
        self._prefix = self._key if not self._key or self._key.endswith("/") else f"{self._key}/"
        self._is_object: bool | None = False if self._key == self._prefix else None
        self._aws = Aws(access)
        self._has_answered = False
        self._lock, self._running = threading.Lock(), set[Any]()
        with self.explained():  # a wrong profile or endpoint
            self._client = self._aws.client("s3", requests + 2, connect_timeout=10, read_timeout=60)
            self._client.meta.events.register("after-call.s3", self._answered)
        self._manager, self._listener = _transfers(self._client, requests)

    def _answered(self, **_: Any) -> None:
        """S3 has answered a request, be it with a refusal."""
        self._has_answered = True

    def _of(self, name: str) -> str:
        return self._key if self._is_object or not name else self._prefix + name

    def items(self, begin: str = "") -> Iterator[Item]:
        if self._is_object is not False:
            found = self.item("")
            if self._is_object is None:
                self._is_object = found is not None
            if found is not None:
                yield found
            if self._is_object:
                return
        with self.explained():
            whole = self._client.get_paginator("list_objects_v2")
            pages = whole.paginate(Bucket=self._bucket, Prefix=self._prefix + begin)
            for page in pages:
                page["IsTruncated"]  # nothing else tells an empty list from an empty answer
                for each in page.get("Contents", ()):
                    name = each["Key"][len(self._prefix) :]
                    if name and not name.endswith("/"):  # a console's mark of a folder
                        yield Item(name, each["Size"], each["ETag"])

    def item(self, name: str) -> Item | None:
        """``name`` empty: the object that the URI names, under its own name."""
        key = self._of(name)
        try:
            found = self._client.head_object(Bucket=self._bucket, Key=key)
            return Item(name or key.rpartition("/")[2], found["ContentLength"], found["ETag"])
        except Exception as error:
            if code_of(error) in ABSENT:
                return None
            if code_of(error) in ("403", "AccessDenied"):
                if not name:
                    return None  # who may list and not see a key that isn't there is told the same
                self.open(name).close()  # answers to HEAD have no words
            raise self.explain(error, name) from None

    def open(self, name: str) -> Any:
        with self.explained(name):
            return self._client.get_object(Bucket=self._bucket, Key=self._of(name))["Body"]

    def read(self, name: str) -> bytes | None:
        """The whole content; an answer that was cut off is a failure that may pass, whatever its headers say."""
        try:
            with self.explained(name):
                answer = self._client.get_object(Bucket=self._bucket, Key=self._of(name))
                with contextlib.closing(answer["Body"]) as body:
                    data = bytes(body.read())
                size, tag = answer["ContentLength"], answer["ETag"].strip('"')
        except StoreError as error:
            if error.missing and error.kind != "NoSuchBucket":
                return None
            raise
        if len(data) == size and tag != _md5(data):  # in parts, or encrypted, or not what the tag is of
            found = self.item(name)
            size = size if found is None else found.size
        if len(data) != size:
            where = f"s3://{self._bucket}/{self._of(name)}"
            raise StoreError(f"{where}: the answer has {len(data):,} bytes, and the object {size:,}", passing=True)
        return data

    def write(self, name: str, data: bytes, only_new: bool = False) -> bool:
        terms = {"IfNoneMatch": "*"} if only_new else {}
        try:
            self._client.put_object(Bucket=self._bucket, Key=self._prefix + name, Body=data, **terms)
        except Exception as error:
            if only_new and code_of(error) in TAKEN:
                return False
            raise self.explain(error, name) from None
        return True

    def delete(self, names: Iterable[str]) -> None:
        keys = [{"Key": self._prefix + name} for name in names]
        with self.explained():
            for at in range(0, len(keys), BATCH):
                batch = {"Objects": keys[at : at + BATCH], "Quiet": True}
                answer = self._client.delete_objects(Bucket=self._bucket, Delete=batch)
                for refused in answer.get("Errors", ()):
                    words = f"{refused.get('Key')}: {refused.get('Code')}: {refused.get('Message')}"
                    raise StoreError(f"it can't be deleted from {self.place}: {words}")

    def get(self, item: Item, path: str, on_bytes: OnBytes) -> None:
        came, lock = 0, threading.Lock()

        def count(amount: int) -> None:
            nonlocal came
            with lock:
                came += amount
            on_bytes(amount)

        key, told = self._of(item.name), [self._listener(count, item)]
        self._transfer(lambda: self._manager.download(self._bucket, key, path, subscribers=told), item.name)
        if item.size not in (UNKNOWN, came):  # a part that was cut off leaves a hole
            raise StoreError(f"{self.place}: of {item.name} came {came:,} bytes of {item.size:,}", passing=True)

    def put(self, file: BinaryIO, name: str, on_bytes: OnBytes) -> None:
        key, told = self._prefix + name, [self._listener(on_bytes, None)]
        with open(os.dup(file.fileno()), "rb") as own:  # the library closes it
            own.seek(0)
            self._transfer(lambda: self._manager.upload(own, self._bucket, key, subscribers=told), name)

    def _transfer(self, begin: Callable[[], Any], name: str) -> None:
        with self.explained(name):
            future = begin()
            with self._lock:
                self._running.add(future)
            try:
                future.result()
            finally:
                with self._lock:
                    self._running.discard(future)

    def cancel(self) -> None:
        with self._lock:
            running = list(self._running)
        for future in running:
            future.cancel()

    def explain(self, error: Exception, name: str = "") -> StoreError:
        if isinstance(error, StoreError):
            return error
        found = self._explained(error, f"s3://{self._bucket}/{self._of(name)}" if name else self.place)
        found.kind = found.kind or (code_of(error) if getattr(error, "response", None) else type(error).__name__)
        found.unreachable = found.unreachable and not self._has_answered
        return found

    def _explained(self, error: Any, where: str) -> StoreError:
        errors, code, takes = self._aws.errors, code_of(error), ""
        if isinstance(error, errors.ClientError):
            takes = f"{RIGHTS.get(error.operation_name, 's3:PutObject')}, and the object's KMS key if it has one"
        if code == "NoSuchBucket":
            return StoreError(f"there is no bucket {self._bucket!r} ({where})", missing=True)
        if code in ABSENT:
            return StoreError(f"there is no object {where}", missing=True)
        if code in REPLACED or type(error).__name__ == "S3DownloadFailedError":  # its name for a refused If-Match
            return StoreError(f"{where} was replaced by another object while it was being read", passing=True)
        if isinstance(error, OSError) and not isinstance(error, errors.BotoCoreError):
            return StoreError(os_words(error), local=True)
        last = getattr(error, "last_exception", None)  # of s3transfer's that has given up
        return self._explained(last, where) if last is not None else self._aws.explain(error, where, takes)


def _md5(data: bytes) -> str:
    """The tag that S3 gives what was sent in one piece and isn't encrypted by KMS."""
    return hashlib.md5(data, usedforsecurity=False).hexdigest()


def _transfers(client: Any, requests: int) -> tuple[Any, Callable[[OnBytes, Item | None], Any]]:
    """s3transfer's manager, and what makes a listener to one transfer; ``item``: what is to come."""
    manager, utils = library("s3transfer.manager", "boto3"), library("s3transfer.utils", "boto3")
    subscribers = library("s3transfer.subscribers", "boto3")

    class Listener(subscribers.BaseSubscriber):  # type: ignore[name-defined, misc]
        def __init__(self, on_bytes: OnBytes, item: Item | None) -> None:
            self._on_bytes, self._item = on_bytes, item

        def on_queued(self, future: Any, **_: Any) -> None:
            item = self._item
            if item is not None and item.tag and hasattr(future.meta, "provide_object_etag"):
                future.meta.provide_transfer_size(item.size)  # spares a request; asks If-Match
                future.meta.provide_object_etag(item.tag)

        def on_progress(self, future: Any, bytes_transferred: int, **_: Any) -> None:
            self._on_bytes(bytes_transferred)

    class Chunk(utils.ReadFileChunk):  # type: ignore[name-defined, misc]
        """Fails where the file becomes shorter, instead of S3 waiting for the rest."""

        def read(self, amount: Any = None) -> Any:
            data = super().read(amount)
            if not data and amount != 0 and self.tell() < len(self):
                raise OSError(f"{getattr(self._fileobj, 'name', 'it')} became shorter")
            return data

    class Files(utils.OSUtils):  # type: ignore[name-defined, misc]
        def open_file_chunk_reader_from_fileobj(
            self, fileobj: Any, chunk_size: int, full_file_size: int, callbacks: Any, close_callbacks: Any = None
        ) -> Any:
            return Chunk(fileobj, chunk_size, full_file_size, callbacks, False, close_callbacks)

    config = manager.TransferConfig(
        multipart_threshold=PART, multipart_chunksize=PART, max_request_concurrency=requests, max_io_queue_size=QUEUE,
        max_in_memory_upload_chunks=max(2, requests // 2),
    )  # fmt: skip
    return manager.TransferManager(client, config, Files()), Listener
