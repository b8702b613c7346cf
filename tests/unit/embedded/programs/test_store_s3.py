"""What S3's store makes of botocore's own errors. Transfers are tested against a real API, in ``tests/hosts``."""

from __future__ import annotations

import pytest
from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    ConnectionClosedError,
    ConnectTimeoutError,
    EndpointConnectionError,
    ProxyConnectionError,
    ReadTimeoutError,
)

from musterpoint.embedded.programs.store_s3 import S3Store

URL = "http://127.0.0.1:1"


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> S3Store:
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    return S3Store("s3://bucket/data", {"region": "us-east-1", "endpoint": URL})


@pytest.mark.parametrize(
    ("error", "unreachable"),
    [
        (ConnectionClosedError(endpoint_url=URL), False),
        (ReadTimeoutError(endpoint_url=URL), False),
        (ConnectTimeoutError(endpoint_url=URL), True),
        (EndpointConnectionError(endpoint_url=URL), True),
        (ProxyConnectionError(proxy_url=URL), True),
    ],
    ids=lambda each: type(each).__name__,
)
def test_connections_that_fail(store: S3Store, error: BotoCoreError, unreachable: bool) -> None:
    """Some of these errors have a response that is None."""
    found = store.explain(error, "data/x")
    assert (found.passing, found.kind, found.unreachable) == (True, type(error).__name__, unreachable)
    assert str(found).startswith("s3://bucket/data/x: ")


def test_who_has_answered_once_is_no_absent_network(store: S3Store) -> None:
    store._answered()
    assert not store.explain(EndpointConnectionError(endpoint_url=URL)).unreachable


def test_an_upload_in_parts_that_the_store_has_forgotten_begins_again(store: S3Store) -> None:
    """A lifecycle rule of the bucket has ended it, or an emulator was started anew."""
    words = {"Error": {"Code": "NoSuchUpload", "Message": "The specified upload does not exist."}}
    found = store.explain(ClientError(words, "UploadPart"))
    assert (found.passing, found.missing, found.kind) == (True, False, "NoSuchUpload")
