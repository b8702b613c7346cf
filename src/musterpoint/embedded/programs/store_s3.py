"""S3 by boto3: the SDK's own chain of credentials, and s3transfer's transfers by threads.

Runs in a Python that has boto3, without musterpoint.
"""

from __future__ import annotations

import importlib
import threading
from typing import Any, Callable, Iterable, Iterator

from musterpoint.embedded.programs.s3_files import file_access
from musterpoint.embedded.programs.stores import Item, Lacks, OnBytes, OnDone, Store, StoreError, brief, os_words

PART = 16 * 1024**2
"""Bytes of one part; larger files are transferred in parts."""
REQUESTS = 16
TRIES = 4
"""Tries of one request before its transfer has failed."""
BATCH = 1000
"""Keys of one request to delete them."""
IDENTITY_SECONDS = 3
TRANSIENT = (
    "SlowDown",
    "RequestTimeout",
    "RequestTimeTooSkewed",
    "Throttling",
    "ThrottlingException",
    "InternalError",
    "ServiceUnavailable",
    "TooManyRequests",
    "500",
    "503",
)
DENIED = (
    "AccessDenied",
    "403",
    "AccessDeniedException",
    "InvalidAccessKeyId",
    "SignatureDoesNotMatch",
    "ExpiredToken",
    "InvalidToken",
    "Forbidden",
)
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
        self._access, self._requests, self._who = access, requests, ""
        try:
            self._boto3 = importlib.import_module("boto3")
            self._errors = importlib.import_module("botocore.exceptions")
            self._manager = importlib.import_module("s3transfer.manager")
            self._utils = importlib.import_module("s3transfer.utils")
            self._subscriber = importlib.import_module("s3transfer.subscribers").BaseSubscriber
        except ImportError as error:
            raise Lacks("boto3" if error.name in ("boto3", "botocore", "s3transfer") else str(error)) from None
        try:
            self._client = self._connect("s3", requests + 2, TRIES, connect_timeout=10, read_timeout=60)
        except Exception as error:  # a wrong profile or endpoint
            raise self.explain(error) from None
        self._transfers: dict[str, Any] = {}
        self._futures: dict[int, Any] = {}
        self._lock = threading.Lock()
        self._count = 0

    def _connect(self, service: str, connections: int, tries: int, **times: Any) -> Any:
        configuration = importlib.import_module("botocore.config")
        config = configuration.Config(
            max_pool_connections=connections, retries={"mode": "standard", "total_max_attempts": tries}, **times
        )
        more = {"endpoint_url": self._access["endpoint"]} if self._access.get("endpoint") else {}
        return self._boto3.client(service, region_name=self._access.get("region") or None, config=config, **more)

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
                    if name and not (name.endswith("/") and not each["Size"]):  # a console's mark of a folder
                        yield Item(name, each["Size"], each["ETag"])
        except Exception as error:
            raise self.explain(error, self._prefix) from None

    def item(self, name: str) -> Item | None:
        """``name`` empty: the object that the URI names, under its own name."""
        key = self._prefix + name if name else self._key
        try:
            found = self._client.head_object(Bucket=self._bucket, Key=key)
        except self._errors.ClientError as error:
            if error.response.get("Error", {}).get("Code") in ("404", "NoSuchKey", "NotFound"):
                return None
            if not name and error.response.get("Error", {}).get("Code") in ("403", "AccessDenied"):
                return None  # who may list and not see a key that isn't there is told the same
            raise self.explain(error, key) from None
        except Exception as error:
            raise self.explain(error, key) from None
        return Item(name or key.rpartition("/")[2], found["ContentLength"], found["ETag"])

    def _of(self, name: str) -> str:
        return self._key if self._is_object else self._prefix + name

    def read(self, name: str) -> bytes | None:
        key = self._prefix + name if name else self._key
        try:
            return bytes(self._client.get_object(Bucket=self._bucket, Key=key)["Body"].read())
        except Exception as error:
            found = self.explain(error, key)
            if found.missing and not _code(error).endswith("Bucket"):
                return None
            raise found from None

    def write(self, name: str, data: bytes) -> None:
        key = self._prefix + name
        try:
            self._client.put_object(Bucket=self._bucket, Key=key, Body=data)
        except Exception as error:
            raise self.explain(error, key) from None

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
        listener = self._listener(key, on_bytes, on_done, item)
        self._begin(lambda: self._transfer("get").download(self._bucket, key, path, subscribers=[listener]), listener)

    def send(self, path: str, name: str, on_bytes: OnBytes, on_done: OnDone) -> None:
        key = self._prefix + name
        listener = self._listener(key, on_bytes, on_done, None)
        self._begin(lambda: self._transfer("put").upload(path, self._bucket, key, subscribers=[listener]), listener)

    def _begin(self, begin: Callable[[], Any], listener: Any) -> None:
        with self._lock:
            self._count += 1
            listener.number = self._count
        try:
            future = begin()
        except Exception as error:
            listener.finish(error)
            return
        with self._lock:
            if not listener.is_over:
                self._futures[listener.number] = future

    def cancel(self) -> None:
        with self._lock:
            futures = list(self._futures.values())
        for future in futures:
            future.cancel()

    def _transfer(self, _what: str) -> Any:
        if not self._transfers:
            config = self._manager.TransferConfig(
                multipart_threshold=PART, multipart_chunksize=PART, max_request_concurrency=self._requests
            )
            self._transfers["all"] = self._manager.TransferManager(
                self._client, config, file_access(self._utils, _name_of)
            )
        return self._transfers["all"]

    def _listener(self, key: str, on_bytes: OnBytes, on_done: OnDone, item: Item | None) -> Any:
        store = self

        class Listener(self._subscriber):  # type: ignore[name-defined, misc]
            number = 0
            is_over = False

            def on_queued(self, future: Any, **_: Any) -> None:
                if (
                    item is not None and item.tag and hasattr(future.meta, "provide_object_etag")
                ):  # spares a request; asks If-Match
                    future.meta.provide_transfer_size(item.size)
                    future.meta.provide_object_etag(item.tag)

            def on_progress(self, future: Any, bytes_transferred: int, **_: Any) -> None:
                on_bytes(bytes_transferred)

            def on_done(self, future: Any, **_: Any) -> None:
                try:
                    future.result()
                except BaseException as error:
                    self.finish(error)
                else:
                    self.finish(None)

            def finish(self, error: BaseException | None) -> None:
                with store._lock:
                    self.is_over = True
                    store._futures.pop(self.number, None)
                on_done(None if error is None else store.explain(error, key))

        return Listener()

    # -- what went wrong --

    def explain(self, error: BaseException, key: str = "") -> StoreError:
        if isinstance(error, StoreError):
            return error
        found = self._explained(error, f"s3://{self._bucket}/{key}" if key else self.place)
        found.kind = found.kind or (_code(error) if hasattr(error, "response") else type(error).__name__)
        return found

    def _explained(self, error: BaseException, where: str) -> StoreError:
        errors = self._errors
        if isinstance(error, (errors.NoCredentialsError, errors.PartialCredentialsError)):
            return StoreError(
                f"{where}: there are no AWS credentials on this host: give the job a role, or set AWS_ACCESS_KEY_ID "
                "and its like"
            )
        if isinstance(error, errors.NoRegionError):
            return StoreError(f"{where}: no AWS region is known: set AWS_REGION")
        if isinstance(error, errors.ClientError):
            return self._refused(error, where)
        if isinstance(error, OSError) and not isinstance(error, errors.BotoCoreError):
            return StoreError(os_words(error), local=True)
        if type(error).__name__ == "S3DownloadFailedError":  # s3transfer's name for a refused If-Match
            return StoreError(f"{where} was replaced by another object while it was being read", passing=True)
        if type(error).__name__ in ("S3UploadFailedError", "RetriesExceededError") and error.args:
            last = getattr(error, "last_exception", None)
            if last is not None:
                return self.explain(last, where.removeprefix(f"s3://{self._bucket}/"))
        if isinstance(error, (errors.HTTPClientError, errors.EndpointConnectionError)):
            return StoreError(f"{where}: {brief(error)}; has this host a network?", passing=True)
        passing = isinstance(error, (errors.IncompleteReadError, errors.ConnectionError)) or "Cancel" in str(
            type(error)
        )
        return StoreError(f"{where}: {brief(error)}", passing)

    def _refused(self, error: Any, where: str) -> StoreError:
        code, words = _code(error), error.response.get("Error", {}).get("Message", "")
        status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
        if code == "NoSuchBucket":
            return StoreError(f"there is no bucket {self._bucket!r} ({where})", missing=True)
        if code in ("NoSuchKey", "404", "NotFound"):
            return StoreError(f"there is no object {where}", missing=True)
        if code in ("PreconditionFailed", "412"):
            return StoreError(f"{where} was replaced by another object while it was being read", passing=True)
        if code in DENIED:
            needed = RIGHTS.get(error.operation_name, "s3:PutObject")
            return StoreError(
                f"{where} was refused to {self._identity()} ({code}: {words}): it takes {needed}, and the object's KMS "
                "key if it has one"
            )
        return StoreError(f"{where}: {brief(error)}", status >= 500 or status == 429 or code in TRANSIENT)

    def _identity(self) -> str:
        """Who we are to AWS, for a message; asked once."""
        self._who = self._who or self._asked_identity()
        return self._who

    def _asked_identity(self) -> str:
        try:
            times = {"connect_timeout": IDENTITY_SECONDS, "read_timeout": IDENTITY_SECONDS}
            found = self._connect("sts", 1, 1, **times).get_caller_identity().get("Arn", "")
            if found:
                return str(found)
        except Exception:
            pass  # no network to STS, or an S3 of others, which has none
        try:
            credentials = self._boto3.Session().get_credentials()
            return f"the access key ...{credentials.access_key[-4:]} (from {credentials.method})"
        except Exception:
            return "these credentials"


def _code(error: Any) -> str:
    return str(getattr(error, "response", {}).get("Error", {}).get("Code", "?"))


def _name_of(file: Any) -> str:
    return str(getattr(file, "name", "it"))
