"""What AWS refuses, as sentences, and an index of CodeArtifact; the hosts' tests have a real boto3."""

from __future__ import annotations

import json
import signal
from types import SimpleNamespace
from typing import Any, Iterator

import pytest

from musterpoint.embedded.programs import aws_client, code_artifact
from musterpoint.embedded.programs.aws_client import Aws
from musterpoint.embedded.programs.stores import Lacks

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
    monkeypatch.setattr(aws_client.importlib, "import_module", modules.__getitem__)
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

    monkeypatch.setattr(aws_client.importlib, "import_module", missing)
    with pytest.raises(Lacks, match="boto3"):
        Aws({})
    assert code_artifact.main(REQUEST) == 1
    assert json.loads(capsys.readouterr().out) == {"lacks": "boto3"}
