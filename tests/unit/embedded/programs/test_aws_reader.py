"""Reading an object through answers that break off, with stand-ins for botocore's errors; the hosts' tests have it."""

from __future__ import annotations

import io
import json
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from musterpoint.embedded.programs import aws_reader


class BotoCoreError(Exception):
    def __init__(self, *words: Any, **_: Any) -> None:
        super().__init__(*words or ("words of botocore",))


class HTTPClientError(BotoCoreError):
    pass


class IncompleteReadError(BotoCoreError):
    pass


class NoCredentialsError(BotoCoreError):
    pass


class PartialCredentialsError(BotoCoreError):
    pass


class NoRegionError(BotoCoreError):
    pass


class ClientError(Exception):
    def __init__(self, code: str, status: int = 400, message: str = "its words") -> None:
        super().__init__(f"An error occurred ({code})")
        self.response = {"Error": {"Code": code, "Message": message}, "ResponseMetadata": {"HTTPStatusCode": status}}


ERRORS = SimpleNamespace(
    BotoCoreError=BotoCoreError, HTTPClientError=HTTPClientError, IncompleteReadError=IncompleteReadError,
    ClientError=ClientError, NoCredentialsError=NoCredentialsError, PartialCredentialsError=PartialCredentialsError,
    NoRegionError=NoRegionError,
)  # fmt: skip
DATA = bytes(range(256)) * 40


class Body(io.BytesIO):
    """Ends with ``error`` behind its bytes."""

    def __init__(self, data: bytes, error: Exception | None) -> None:
        super().__init__(data)
        self.error = error

    def read(self, size: int | None = -1) -> bytes:
        data = super().read(size)
        if not data and self.error is not None:
            raise self.error
        return data


class Client:
    """Answers with the next of ``script``: an error, or how many bytes come and what comes then."""

    def __init__(self, *script: Any, ranges: bool = True) -> None:
        self.script, self.ranges = list(script), ranges
        self.asked: list[dict[str, str]] = []

    def get_object(self, **words: str) -> dict[str, Any]:
        self.asked.append(words)
        step = self.script.pop(0) if self.script else (len(DATA), None)
        if isinstance(step, Exception):
            raise step
        at = int(words["Range"].removeprefix("bytes=").rstrip("-")) if self.ranges and "Range" in words else 0
        count, error = step
        return {
            "ContentLength": len(DATA) - at, "ETag": "e", "Body": Body(DATA[at : at + count], error),
            "ResponseMetadata": {"HTTPStatusCode": 206 if at else 200},
        }  # fmt: skip


@pytest.fixture(autouse=True)
def no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(aws_reader.time, "sleep", lambda seconds: None)


def request(path: Path, **more: str) -> dict[str, Any]:
    return {"action": "get", "bucket": "b", "key": "k", "path": str(path), **more}


SCRIPTS: dict[str, list[Any]] = {
    "at once": [],
    "a slow-down": [ClientError("SlowDown", 503), ClientError("x", 500), ClientError("x", 429)],
    "a connection that breaks": [(1000, HTTPClientError()), (0, HTTPClientError())],
    "an early end": [(1000, None), (3000, None)],
    "a refused connection": [HTTPClientError(), HTTPClientError()],
}


@pytest.mark.parametrize("name", SCRIPTS)
@pytest.mark.parametrize("ranges", [True, False])
def test_the_object_arrives_whole(name: str, ranges: bool, tmp_path: Path) -> None:
    client = Client(*SCRIPTS[name], ranges=ranges)
    assert aws_reader.get(client, ERRORS, request(tmp_path / "object")) == {"size": len(DATA)}
    assert (tmp_path / "object").read_bytes() == DATA


def test_what_has_arrived_is_not_asked_for_again(tmp_path: Path) -> None:
    client = Client((1000, HTTPClientError()), (500, None))
    aws_reader.get(client, ERRORS, request(tmp_path / "object"))
    assert [words.get("Range") for words in client.asked] == [None, "bytes=1000-", "bytes=1500-"]
    assert [words.get("IfMatch") for words in client.asked] == [None, "e", "e"], "another version was mixed in"


def test_it_gives_up_where_nothing_moves(tmp_path: Path) -> None:
    client = Client(*[HTTPClientError("no route")] * 20)
    with pytest.raises(aws_reader.Failed, match="6 tries failed, the last with: no route"):
        aws_reader.get(client, ERRORS, request(tmp_path / "object"))


def test_it_goes_on_while_something_moves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(aws_reader, "HEADWAY", 1000)
    client = Client(*[(1000, HTTPClientError())] * 10)
    aws_reader.get(client, ERRORS, request(tmp_path / "object"))
    assert (tmp_path / "object").read_bytes() == DATA


def test_an_error_that_stays(tmp_path: Path) -> None:
    client = Client(ClientError("NoSuchKey", 404))
    with pytest.raises(ClientError):
        aws_reader.get(client, ERRORS, request(tmp_path / "object"))
    assert len(client.asked) == 1


def test_a_full_disk(tmp_path: Path) -> None:
    with pytest.raises(aws_reader.Failed, match="can't be written to this host's disk: No space left on device"):
        aws_reader.get(Client(), ERRORS, request(Path("/dev/full")))


@pytest.mark.parametrize(
    ("error", "action", "says"),
    [
        (ClientError("NoSuchKey"), "get", "there is no object 'k' in the bucket 'b'"),
        (ClientError("NoSuchBucket"), "get", "there is no bucket 'b'"),
        (ClientError("PreconditionFailed"), "get", "was replaced by another one while it was being read"),
        (ClientError("AccessDenied"), "get", "access denied (its words): the job's role needs s3:GetObject"),
        (ClientError("AccessDeniedException"), "index", "needs codeartifact:GetAuthorizationToken"),
        (ClientError("Odd"), "get", "An error occurred (Odd)"),
        (NoCredentialsError(), "get", "there are no AWS credentials on this host"),
        (PartialCredentialsError(), "index", "there are no AWS credentials on this host"),
        (NoRegionError(), "index", "no AWS region is known: set AWS_REGION"),
        (HTTPClientError("Could not connect"), "get", "Could not connect; has this host a network?"),
        (aws_reader.Failed("a sentence"), "get", "a sentence"),
    ],
)
def test_sentences(error: Exception, action: str, says: str) -> None:
    assert says in aws_reader.sentence(error, ERRORS, request(Path("x"), action=action))


def test_an_index() -> None:
    client = SimpleNamespace(
        get_authorization_token=lambda **words: {"authorizationToken": json.dumps(words)},
        get_repository_endpoint=lambda **words: {"repositoryEndpoint": json.dumps(words)},
    )
    found = aws_reader.index(client, {"domain": "d", "owner": "o", "repository": "r"})
    assert json.loads(found["token"]) == {"domain": "d", "domainOwner": "o"}
    assert json.loads(found["url"]) == {"domain": "d", "domainOwner": "o", "repository": "r", "format": "pypi"}


def test_without_boto3(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def missing(name: str) -> None:
        raise ImportError(f"No module named {name!r}")

    monkeypatch.setattr(aws_reader.importlib, "import_module", missing)
    assert aws_reader.main({**request(Path("x")), "no_boto3": 3}) == 3
    assert json.loads(capsys.readouterr().out) == {"error": "No module named 'boto3'"}


def test_what_the_disk_has_no_room_for_is_not_begun(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "statvfs", lambda folder: SimpleNamespace(f_bavail=2, f_frsize=512))
    with pytest.raises(aws_reader.Failed, match=r"it has 10,240 bytes, and this host's disk has room for 1,024"):
        aws_reader.get(Client(), ERRORS, request(tmp_path / "object"))
    assert (tmp_path / "object").stat().st_size == 0
