"""A job's files from S3 and to it. While the server is away, a transfer waits for it and begins again."""

from __future__ import annotations

import os
import shutil
import socket
import threading
from typing import Any, Callable, Iterator, Mapping, NamedTuple, TypeVar

import boto3
from boto3.exceptions import RetriesExceededError, S3UploadFailedError
from boto3.s3.transfer import TransferConfig
from botocore.config import Config
from botocore.exceptions import ClientError, ConnectionError, HTTPClientError, IncompleteReadError

from musterpoint.base.errors import FetchError
from musterpoint.core.data import channels
from musterpoint.core.data.mover import Access
from musterpoint.core.data.places import ALONE, Channel, Share
from musterpoint.serve.settings import Settings
from musterpoint.serve.training_request import split_uri

Result = TypeVar("Result")
LONGEST_ABSENCE = 3600.0
"""Seconds that a job waits for a server that is gone."""
_CUT = (ConnectionError, HTTPClientError, IncompleteReadError, RetriesExceededError)
"""What is raised when the server goes away."""
_FORGOTTEN = "NoSuchUpload"
"""What a new server says of an upload in parts that its predecessor knew."""
_IN_PARTS = 1 << 30
"""Bytes from which an object is uploaded in parts."""
_CHUNK = 1 << 16
_MOST_CUT = 10
"""Connections of one transfer that may break while a server answers: a new one may be there before its word is."""


class TransferError(Exception):
    """S3 refused it; the text says what and why."""


class Object(NamedTuple):
    """An object of S3, as a listing has it."""

    bucket: str
    key: str
    size: int


class Transfers:
    """One job's transfers. ``given_up`` is asked before each object: an exception from it ends the transfer."""

    def __init__(self, settings: Settings, given_up: Callable[[], None]) -> None:
        self._settings = self._known = settings
        self._given_up = given_up
        self._back = threading.Event()
        self._client = client(settings)

    def server_is_back(self, settings: Settings) -> None:
        """A server has been started anew; to be called from any thread."""
        self._settings = settings
        self._back.set()

    def _patiently(self, action: Callable[[Any], Result]) -> Result:
        cut = 0
        while True:
            self._given_up()
            self._back.clear()
            try:
                return action(self._client)
            except ClientError as error:
                raise TransferError(_words(error)) from None
            except S3UploadFailedError as error:
                if _FORGOTTEN not in str(error):
                    raise TransferError(str(error).partition(": ")[2] or str(error)) from None
                cut += 1
            except _CUT:
                cut += 1
            if cut > _MOST_CUT:
                raise TransferError(f"the connection to muster serve broke {cut} times")
            if self._known == self._settings and not is_answering(self._settings):
                if not self._back.wait(LONGEST_ABSENCE):
                    raise TransferError(f"no muster serve has been there for {LONGEST_ABSENCE:g} s")
                cut = 0
            self._known = self._settings
            self._client = client(self._known)

    def objects(self, uri: str) -> list[Object]:
        """What lies below the prefix ``uri``, in the order of the keys; without the markers of empty folders."""
        bucket, prefix = split_uri(uri)

        def ask(s3: Any) -> list[Object]:
            pages = s3.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=prefix)
            return [Object(bucket, found["Key"], found["Size"]) for page in pages for found in page.get("Contents", ())]

        return [found for found in self._patiently(ask) if not found.key.endswith("/")]

    def read(self, uri: str) -> bytes:
        bucket, key = split_uri(uri)
        body: bytes = self._patiently(lambda s3: s3.get_object(Bucket=bucket, Key=key)["Body"].read())
        return body

    def stream(self, uri: str) -> Iterator[bytes]:
        """The content of an object, in pieces; after a cut it goes on where it was."""
        bucket, key = split_uri(uri)
        at, size = 0, None
        while size is None or at < size:
            rest = {"Range": f"bytes={at}-"} if at else {}
            answer = self._patiently(lambda s3, rest=rest: s3.get_object(Bucket=bucket, Key=key, **rest))  # type: ignore[misc]
            size = at + int(answer["ContentLength"])
            try:
                while data := answer["Body"].read(_CHUNK):
                    at += len(data)
                    yield data
            except _CUT:
                continue

    def bring(self, channel: Channel, folder: str, share: Share = ALONE) -> None:
        """Brings the files of a channel to ``folder``; after a cut it goes on where it was."""

        tries = 0

        def ask(_: Any) -> None:
            nonlocal tries
            tries += 1
            environ = {**os.environ, **self._known.variables}
            try:
                channels.bring(channel, folder, Access(environ), share)
            except FetchError as error:
                if tries > 1 and is_answering(self._known):  # once more, since the server may just have come back
                    raise TransferError(str(error)) from None
                raise ConnectionError(error=error) from None

        self._patiently(ask)

    def download(self, found: Object, path: str) -> None:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        self._patiently(lambda s3: s3.download_file(found.bucket, found.key, path))

    def upload(self, path: str, uri: str) -> None:
        bucket, key = split_uri(uri)
        whole = TransferConfig(multipart_threshold=_IN_PARTS)
        self._patiently(lambda s3: s3.upload_file(path, bucket, key, Config=whole))

    def upload_tree(self, folder: str, uri: str) -> int:
        """Every regular file below ``folder``; how many there were."""
        count = 0
        for name, path in files(folder):
            self.upload(path, f"{uri.rstrip('/')}/{name}")
            count += 1
        return count

    def download_tree(self, uri: str, folder: str) -> int:
        """Everything below the prefix ``uri``, with the paths that it has there; how many objects."""
        prefix = uri.rstrip("/") + "/"
        found = self.objects(prefix)
        for each in found:
            self.download(each, os.path.join(folder, each.key.removeprefix(split_uri(prefix)[1])))
        return len(found)


def client(settings: Settings) -> Any:
    """An S3 client of the server's own account. One try each: who calls it knows what to wait for."""
    return boto3.client(
        "s3",
        endpoint_url=settings.url,
        region_name=settings.region,
        aws_access_key_id=settings.access_key,
        aws_secret_access_key=settings.secret_key,
        config=Config(s3={"addressing_style": "path"}, retries={"total_max_attempts": 1}, proxies={}),
    )


def is_answering(settings: Settings) -> bool:
    """Whether the server takes connections: if it does, an error isn't for its absence."""
    try:
        socket.create_connection((settings.host or "127.0.0.1", settings.port), 5.0).close()
    except OSError:
        return False
    return True


def files(folder: str) -> Iterator[tuple[str, str]]:
    """The regular files below ``folder``: relative path, and path."""
    for where, folders, names in os.walk(folder):
        folders.sort()
        for name in sorted(names):
            path = os.path.join(where, name)
            if os.path.isfile(path):
                yield os.path.relpath(path, folder), path


def _words(error: ClientError) -> str:
    answer: Mapping[str, Any] = error.response.get("Error", {})
    return f"{answer.get('Code', 'Error')}: {answer.get('Message', error)} ({error.operation_name})"


def copy_tree(source: str, target: str) -> None:
    """The same files under another path, without their bytes twice."""
    for name, path in files(source):
        place = os.path.join(target, name)
        os.makedirs(os.path.dirname(place), exist_ok=True)
        try:
            os.link(path, place)
        except OSError:
            shutil.copyfile(path, place)
