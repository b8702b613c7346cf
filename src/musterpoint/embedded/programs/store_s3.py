"""S3 by boto3: the SDK's own chain of credentials, and s3transfer's transfers, by AWS's CRT or by threads.

:func:`open_store` chooses between it and the other stores. Runs in a Python that may have no musterpoint.
"""

from __future__ import annotations

import importlib
import re
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
    brief,
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
_CRT_LOCK = "musterpoint-{}"
"""One process of a host runs the CRT for a store: that is quicker than several, says s3transfer. Others use threads."""
_OLDEST_CRT = (0, 19, 18)
"""The oldest that boto3 takes."""
_CRT_PART, _CRT_REQUESTS = 8 * 1024**2, 8
"""Bytes of a part and requests at a time: the CRT holds several parts of each request, and ranks need the memory."""
_MOST_OF_MANAGER = 1000
"""Transfers of one manager, which notes each for as long as it lives."""
_CRT_MOVED = ("301", "PermanentRedirect", "AuthorizationHeaderMalformed", "IllegalLocationConstraintException")
"""What S3 says of a bucket of another region, which botocore follows and the CRT doesn't."""
_CRT_LOCAL = ("AWS_ERROR_FILE_", "AWS_ERROR_NO_SPACE", "AWS_ERROR_NO_PERMISSION")
"""Begin the CRT's names of what this host's disk refuses."""
_CRT_SHORTER = "AWS_ERROR_S3_INCORRECT_CONTENT_LENGTH"
_CRT_ANSWERED = ("AWS_AUTH_", "AWS_ERROR_S3_")
"""Begin its names of failures to sign, and of what the store answered: the network is there."""
_CRT_ABSENT = (
    "AWS_IO_DNS_",
    "AWS_IO_SOCKET_CONNECTION_REFUSED",
    "AWS_IO_SOCKET_NO_ROUTE_TO_HOST",
    "AWS_IO_SOCKET_NETWORK_DOWN",
    "AWS_IO_SOCKET_TIMEOUT",
)
"""Begin its names of connections that never came about."""


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
        self._crt: _Crt | None = None
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
            number, by, crt = self._count, *self._engine()

        def over(error: BaseException | None) -> None:
            with self._lock:
                self._futures.pop(number, None)
                self._has_answered = self._has_answered or error is None  # botocore doesn't hear of the CRT's requests
            if crt is not None and error is not None and code_of(error) in _CRT_MOVED:
                with self._lock:
                    self._crt = None
                self._begin(begin, key, on_bytes, on_done, item)
                return
            on_done(None if error is None else self.explain(error, key))

        listener = self._listener(on_bytes, over, item, crt is not None)
        try:
            future = begin(by, [listener])
        except Exception as error:
            over(error)
            return
        with self._lock:
            self._futures[number] = future
        listener.step(future)

    def cancel(self) -> None:
        with self._lock:
            futures = list(self._futures.values())
        for future in futures:
            future.cancel()

    def _engine(self) -> tuple[Any, _Crt | None]:
        """What begins a transfer; and the CRT, if it is that."""
        if self._threads is None:
            config = self._manager.TransferConfig(
                multipart_threshold=PART,
                multipart_chunksize=PART,
                max_request_concurrency=self._requests,
                max_io_queue_size=QUEUE,
            )
            files = _file_access(self._utils, _name_of)
            self._threads = self._manager.TransferManager(self._client, config, files)
            self._crt = _crt_engine(self._client)
        return (self._threads if self._crt is None else self._crt.manager()), self._crt

    def _listener(
        self, on_bytes: OnBytes, over: Callable[[BaseException | None], None], item: Item | None, by_crt: bool
    ) -> Any:
        """``over`` is called when the transfer has ended and has a future: the CRT may end it before it has one."""
        lock = self._lock

        class Listener(self._subscriber):  # type: ignore[name-defined, misc]
            steps = 2

            def on_queued(self, future: Any, **_: Any) -> None:
                if item is None or not item.tag:
                    return
                if by_crt:
                    future.meta.call_args.extra_args["IfMatch"] = item.tag
                elif hasattr(future.meta, "provide_object_etag"):  # spares a request; asks If-Match
                    future.meta.provide_transfer_size(item.size)
                    future.meta.provide_object_etag(item.tag)

            def on_progress(self, future: Any, bytes_transferred: int, **_: Any) -> None:
                on_bytes(bytes_transferred)

            def on_done(self, future: Any, **_: Any) -> None:
                self.step(future)

            def step(self, future: Any) -> None:
                with lock:
                    self.steps -= 1
                    if self.steps:
                        return
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
        if name := _name_in_crt(error):
            if name.startswith(_CRT_LOCAL) or name == _CRT_SHORTER:
                words = "a file became shorter while it was sent" if name == _CRT_SHORTER else brief(error)
                return StoreError(f"{where}: {words}", local=True)
            hint = "" if name.startswith(_CRT_ANSWERED) else "; has this host a network?"
            found = StoreError(f"{where}: {brief(error)}{hint}", passing=True)
            found.unreachable = name.startswith(_CRT_ABSENT)
            return found
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


def _name_of(file: Any) -> str:
    return str(getattr(file, "name", "it"))


class _Crt:
    """AWS's CRT for transfers as those of ``client``, as s3transfer runs it; threads do what it can't."""

    def __init__(self, crt: Any, client: Any, session: Any, credentials: Any) -> None:
        url, region = client.meta.endpoint_url, client.meta.region_name
        trusted = importlib.import_module("botocore.httpsession").get_cert_path
        wrapper = crt.BotocoreCRTCredentialsWrapper(credentials)
        self._crt = crt
        self._config = importlib.import_module("s3transfer.manager").TransferConfig(
            multipart_threshold=_CRT_PART, multipart_chunksize=_CRT_PART, max_request_concurrency=_CRT_REQUESTS
        )
        self._client = crt.create_s3_crt_client(
            region,
            wrapper.to_crt_credentials_provider(),
            use_ssl=not url.startswith("http://"),
            verify=session.get_config_variable("ca_bundle") or trusted(True),
        )
        self._serializer = crt.BotocoreCRTRequestSerializer(session, {"region_name": region, "endpoint_url": url})
        self._left = 0
        self._manager: Any = None

    def manager(self) -> Any:
        """What begins the next transfer."""
        if not self._left:
            self._manager = self._crt.CRTTransferManager(self._client, self._serializer, config=self._config)
            self._left = _MOST_OF_MANAGER
        self._left -= 1
        return self._manager


def _crt_engine(client: Any) -> _Crt | None:
    """The CRT; None where it isn't installed or chosen, can't do what is asked for, or runs in another process here."""
    try:
        crt, version = importlib.import_module("s3transfer.crt"), importlib.import_module("awscrt").__version__
        if tuple(map(int, version.split("."))) < _OLDEST_CRT:
            return None
        session = importlib.import_module("botocore.session").get_session()
        if not _is_preferred(session):
            return None
        credentials = session.get_credentials()
        lock = _CRT_LOCK.format(re.sub("[^a-z0-9]+", "-", client.meta.endpoint_url.lower()))
        if credentials is None or not _suits(client) or crt.acquire_crt_s3_process_lock(lock) is None:
            return None
        return _Crt(crt, client, session, credentials)
    except Exception:  # versions that don't fit, or no native library for this machine
        return None


def _is_preferred(session: Any) -> bool:
    """Whether AWS's command line would take it: ``preferred_transfer_client`` of the profile's ``s3``."""
    said = session.get_scoped_config().get("s3")
    chosen = str(said.get("preferred_transfer_client", "auto") if isinstance(said, dict) else "auto").lower()
    return chosen == "crt" or (chosen == "auto" and importlib.import_module("awscrt.s3").is_optimized_for_system())


def _suits(client: Any) -> bool:
    """Not through a proxy, and not for a store that knows no checksums at the end of a body."""
    utils = importlib.import_module("botocore.utils")
    checksums = getattr(client.meta.config, "request_checksum_calculation", "when_supported")
    return checksums != "when_required" and not utils.get_environ_proxies(client.meta.endpoint_url)


def _name_in_crt(error: BaseException) -> str:
    """The CRT's name of an error of its own; empty: it is another's."""
    if type(error).__name__ == "AwsCrtError":
        return str(getattr(error, "name", ""))
    words = str(error)
    at = words.find("(AWS_")  # what it raises before a request has begun
    return words[at + 1 :].partition(")")[0] if at >= 0 and isinstance(error, RuntimeError) else ""


def _file_access(utils: Any, name_of: Callable[[Any], str] = lambda file: "it") -> Any:
    """s3transfer's file access; a file that becomes shorter fails at once, instead of S3 waiting for the rest.

    ``utils``: ``s3transfer.utils``. ``name_of`` an open file is what the error calls it.
    """

    class Chunk(utils.ReadFileChunk):  # type: ignore[misc]
        def read(self, amount: Any = None) -> Any:
            data = super().read(amount)
            if not data and amount != 0 and self.tell() < len(self):
                raise OSError(f"{name_of(self._fileobj)} became shorter")
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
