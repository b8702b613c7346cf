"""What AWS and botocore refuse, as sentences, and an index of CodeArtifact; ``tests/hosts`` has a real API."""

from __future__ import annotations

import hashlib
import io
import json
import signal
from types import SimpleNamespace
from typing import Any, Iterator, Sequence

import botocore.exceptions as real
import pytest
from botocore.parsers import ResponseParserError

from musterpoint.embedded.programs import code_artifact, transfer_s3
from musterpoint.embedded.programs.transfer import Terms, patiently
from musterpoint.embedded.programs.transfer_s3 import Aws, Item, Lacks, S3Store, StoreError

REQUEST = {"uri": "arn:of-it", "region": "eu-west-1", "owner": "o", "domain": "d", "repository": "r"}


BotoCoreError = type("BotoCoreError", (Exception,), {})
HTTPClientError = type("HTTPClientError", (BotoCoreError,), {})
Unreachable = type("Unreachable", (HTTPClientError,), {})
NoCredentialsError = type("NoCredentialsError", (BotoCoreError,), {})
NoRegionError = type("NoRegionError", (BotoCoreError,), {})


class ClientError(Exception):
    def __init__(self, code: str, status: int = 400) -> None:
        super().__init__(f"An error occurred ({code})")
        self.response = {
            "Error": {"Code": code, "Message": "its words"},
            "ResponseMetadata": {"HTTPStatusCode": status},
        }


class Boto3:
    """Clients of CodeArtifact that answer, or raise ``error``."""

    def __init__(self, error: Exception | None = None) -> None:
        self.error = error
        self.asked: list[Any] = []

    def client(self, service: str, **words: Any) -> Any:
        if service == "sts":
            return SimpleNamespace(get_caller_identity=lambda: {"Arn": "arn:me"})
        self.asked.append((service, words["region_name"]))
        return self

    def get_authorization_token(self, **words: str) -> dict[str, str]:
        if self.error is not None:
            raise self.error
        return {"authorizationToken": json.dumps(words)}

    def get_repository_endpoint(self, **words: str) -> dict[str, str]:
        return {"repositoryEndpoint": json.dumps(words)}


@pytest.fixture(autouse=True)
def sigint() -> Iterator[None]:
    before = signal.getsignal(signal.SIGINT)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture
def boto3(monkeypatch: pytest.MonkeyPatch) -> Boto3:
    made = Boto3()
    errors = SimpleNamespace(
        BotoCoreError=BotoCoreError, HTTPClientError=HTTPClientError, ClientError=ClientError,
        NoCredentialsError=NoCredentialsError, PartialCredentialsError=NoCredentialsError, NoRegionError=NoRegionError,
        EndpointConnectionError=Unreachable, ConnectTimeoutError=Unreachable, ProxyConnectionError=Unreachable,
        IncompleteReadError=HTTPClientError, ConnectionError=HTTPClientError,
    )  # fmt: skip
    config = SimpleNamespace(Config=lambda **words: words)
    modules = {"boto3": made, "botocore.exceptions": errors, "botocore.config": config}
    monkeypatch.setattr(transfer_s3.importlib, "import_module", modules.__getitem__)
    return made


@pytest.mark.parametrize(
    ("error", "says", "passing"),
    [
        (ClientError("AccessDenied", 403), "it was refused to arn:me (AccessDenied: its words): it takes a:R", False),
        (ClientError("Odd"), "it: An error occurred (Odd)", False),
        (ClientError("SlowDown", 503), "it: An error occurred (SlowDown)", True),
        (ClientError("Odd", 429), "it: An error occurred (Odd)", True),
        (NoCredentialsError(), "it: there are no AWS credentials on this host", False),
        (NoRegionError(), "it: no AWS region is known: set AWS_REGION", False),
        (HTTPClientError("Could not connect"), "it: Could not connect; has this host a network?", True),
        (Unreachable("Could not connect"), "it: Could not connect; has this host a network?", True),
        (ValueError("no such profile"), "it: no such profile", False),
    ],
)
def test_sentences(boto3: Boto3, error: Exception, says: str, passing: bool) -> None:
    found = Aws({}).explain(error, "it", "a:R")
    assert str(found).startswith(says) and found.passing is passing
    assert found.unreachable is isinstance(error, Unreachable)


def test_an_index(boto3: Boto3, capsys: pytest.CaptureFixture[str]) -> None:
    assert code_artifact.main(REQUEST) == 0
    done = json.loads(capsys.readouterr().out)["done"]
    assert json.loads(done["token"]) == {"domain": "d", "domainOwner": "o"}
    assert json.loads(done["url"]) == {"domain": "d", "domainOwner": "o", "repository": "r", "format": "pypi"}
    assert boto3.asked == [("codeartifact", "eu-west-1")]


def test_an_index_that_is_refused(boto3: Boto3, capsys: pytest.CaptureFixture[str]) -> None:
    boto3.error = ClientError("AccessDeniedException")
    assert code_artifact.main(REQUEST) == 1
    error = json.loads(capsys.readouterr().out)["error"]
    assert error.startswith("arn:of-it was refused to arn:me") and "codeartifact:GetAuthorizationToken" in error


def test_without_boto3(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def missing(name: str) -> None:
        raise ImportError(f"No module named {name!r}", name=name)

    monkeypatch.setattr(transfer_s3.importlib, "import_module", missing)
    with pytest.raises(Lacks, match="boto3"):
        Aws({})
    assert code_artifact.main(REQUEST) == 1
    assert json.loads(capsys.readouterr().out) == {"lacks": "boto3"}


URL = "http://127.0.0.1:1"


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> S3Store:
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    return S3Store("s3://bucket/data", {"region": "us-east-1", "endpoint": URL})


@pytest.mark.parametrize(
    ("error", "unreachable"),
    [
        (real.ConnectionClosedError(endpoint_url=URL), False),
        (real.ReadTimeoutError(endpoint_url=URL), False),
        (real.ConnectTimeoutError(endpoint_url=URL), True),
        (real.EndpointConnectionError(endpoint_url=URL), True),
        (real.ProxyConnectionError(proxy_url=URL), True),
        (KeyError("UploadId"), False),
        (TypeError("'NoneType' object is not iterable"), False),
        (ResponseParserError("Unable to parse response"), False),
    ],
    ids=lambda each: type(each).__name__,
)
def test_connections_that_fail(store: S3Store, error: Exception, unreachable: bool) -> None:
    """Some of these errors have a response that is None; the last ones come of an answer that was cut off."""
    found = store.explain(error, "x")
    assert (found.passing, found.kind, found.unreachable) == (True, type(error).__name__, unreachable)
    assert str(found).startswith("s3://bucket/data/x: ")


def test_who_has_answered_once_is_no_absent_network(store: S3Store) -> None:
    store._answered()
    assert not store.explain(real.EndpointConnectionError(endpoint_url=URL)).unreachable


def test_an_upload_in_parts_that_the_store_has_forgotten_begins_again(store: S3Store) -> None:
    """A lifecycle rule of the bucket has ended it, or an emulator was started anew."""
    words = {"Error": {"Code": "NoSuchUpload", "Message": "The specified upload does not exist."}}
    found = store.explain(real.ClientError(words, "UploadPart"))
    assert (found.passing, found.missing, found.kind) == (True, False, "NoSuchUpload")


class Answers:
    """A client whose answers are the next of lists."""

    def __init__(self, gets: Sequence[Any] = (), heads: Sequence[Any] = ()) -> None:
        self._gets, self._heads = list(gets), list(heads)

    def get_object(self, **_: str) -> Any:
        found = self._gets.pop(0)
        return {**found, "Body": io.BytesIO(found["Body"])}

    def head_object(self, **_: str) -> Any:
        return self._heads.pop(0)


TEXT = b'{"number": 1}'
WHOLE = {"Body": TEXT, "ContentLength": 13, "ETag": f'"{hashlib.md5(TEXT).hexdigest()}"'}
ENCRYPTED = {**WHOLE, "ETag": '"of-another-kind"'}
HEAD = {"ContentLength": 13, "ETag": '"of-another-kind"'}


@pytest.mark.parametrize(
    ("answer", "heads"),
    [
        ({"Body": b""}, []),
        ({"Body": b"", "ContentLength": 0}, []),
        ({**WHOLE, "Body": b"", "ContentLength": 0}, [HEAD]),
        ({**WHOLE, "Body": TEXT[:6], "ContentLength": 6}, [HEAD]),
        ({**WHOLE, "Body": TEXT[:6]}, []),
        (ENCRYPTED, [{}]),
    ],
    ids=["cut after the status line", "length 0", "length 0 with a tag", "half", "a wrong length", "HEAD is cut"],
)
def test_an_answer_that_was_cut_is_asked_for_again(store: S3Store, answer: Any, heads: list[Any]) -> None:
    store._client = Answers([answer], heads)
    with pytest.raises(StoreError, match="s3://bucket/data/x: the answer") as found:
        store.read("x")
    assert found.value.passing and not found.value.missing
    store._client = Answers([answer, WHOLE], heads)
    assert patiently(lambda: store.read("x"), Terms()) == TEXT


def test_a_small_object_is_read_whole_whatever_its_tag_is_of(store: S3Store) -> None:
    empty = {"Body": b"", "ContentLength": 0, "ETag": '"d41d8cd98f00b204e9800998ecf8427e"'}
    store._client = Answers([WHOLE, ENCRYPTED, empty], [HEAD])
    assert [store.read("x") for _ in range(3)] == [TEXT, TEXT, b""]


@pytest.mark.parametrize("cut", [{}, {"ContentLength": 13}, {"ETag": '"t"'}], ids=str)
def test_an_answer_to_head_that_was_cut_is_asked_for_again(store: S3Store, cut: dict[str, Any]) -> None:
    store._client = Answers(heads=[cut, HEAD])
    assert patiently(lambda: store.item("x"), Terms()) == Item("x", 13, '"of-another-kind"')


def test_a_body_that_is_not_what_its_checksum_says_is_asked_for_again(store: S3Store) -> None:
    found = store.explain(real.FlexibleChecksumError(error_msg="Expected checksum A did not match B"), "x")
    assert (found.passing, found.kind) == (True, "FlexibleChecksumError")
