"""Signatures: requests that boto3 has signed pass, however odd their keys; those that were altered since don't."""

from __future__ import annotations

import io
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from typing import Any

import boto3
import pytest
from botocore import auth
from botocore.awsrequest import AWSPreparedRequest, AWSRequest, AWSResponse
from botocore.config import Config
from botocore.credentials import Credentials
from botocore.exceptions import ClientError
from hypothesis import given
from hypothesis import strategies as st

from musterpoint.serve.errors import ApiError
from musterpoint.serve.signatures import Signed, claim_of, refuse_version_2, verify

from .jobs import BUCKET, Account

SECRET = "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"
KEYS = Credentials("AKIDEXAMPLE", SECRET)
V4 = Config(signature_version="s3v4")
ODD = st.text(
    st.sampled_from(" +%&=?#/~*'()!:;,@$[]{}|\\^`\"<>.-_aZ09éß日本\n\t\u00a0\U0001f600"), min_size=1, max_size=20
)
WORDS = st.text(st.sampled_from("abc XYZ-_019"), min_size=1, max_size=12).map(str.strip).filter(bool)


class Wire:
    """A client of boto3 whose requests are kept and not sent."""

    def __init__(self, service: str, token: str | None = None) -> None:
        self._sent: list[AWSPreparedRequest] = []
        self._answer = b"{}" if service in ("sagemaker", "lambda") else b"<a><AssumeRoleResult/></a>"
        self.client = boto3.client(
            service, endpoint_url="http://127.0.0.1:8311", region_name="us-east-1", aws_access_key_id=KEYS.access_key,
            aws_secret_access_key=SECRET, aws_session_token=token, config=V4 if service == "s3" else None,
        )  # fmt: skip
        self.client.meta.events.register("before-send", self._keep)

    def _keep(self, request: AWSPreparedRequest, **more: Any) -> AWSResponse:
        self._sent.append(request)
        return AWSResponse(request.url, 200, {}, Answer(self._answer))

    def last(self) -> Signed:
        return read(self._sent[-1])


class Answer(io.BytesIO):
    def stream(self) -> Iterator[bytes]:
        return iter((self.read(),))


def read(request: Any) -> Signed:
    """The request as a server reads it."""
    place, body = urllib.parse.urlsplit(request.url), request.body or b""
    headers = {
        name.lower(): value.decode() if isinstance(value, bytes) else str(value)
        for name, value in request.headers.items()
    }
    headers.setdefault("host", place.netloc)
    data = body if isinstance(body, bytes) else body.encode() if isinstance(body, str) else body.read()
    return Signed(request.method, place.path, place.query, headers, lambda: data)


def check(request: Signed, secret: str = SECRET, at: float = 0.0) -> str:
    """The code of the refusal; empty where the signature is right. ``at``: seconds from now."""
    try:
        claim = claim_of(request)
        assert claim is not None and claim.access_key == KEYS.access_key
        verify(request, claim, secret, time.time() + at)
    except ApiError as error:
        return error.code
    return ""


def altered(request: Signed) -> Iterator[Signed]:
    """The request with one thing changed, each in turn."""
    yield request._replace(method="DELETE")
    yield request._replace(path=request.path + "x")
    yield request._replace(path=request.path.replace("/", "/%61", 1))
    yield request._replace(query=request.query + "&more=1")
    yield request._replace(query=request.query.replace("=", "=z", 1) if "=" in request.query else "acl")
    yield request._replace(headers={**request.headers, "host": "127.0.0.1:8312"})
    yield request._replace(headers={**request.headers, "x-amz-acl": "public-read-write"})
    yield request._replace(headers={name: value for name, value in request.headers.items() if name != "host"})


WIRES = {service: Wire(service) for service in ("s3", "sagemaker", "sts", "lambda")}


@given(key=ODD, body=st.binary(max_size=50), meta=st.dictionaries(WORDS.map(lambda word: word.replace(" ", "")), WORDS))
def test_objects_with_odd_keys(key: str, body: bytes, meta: dict[str, str]) -> None:
    wire = WIRES["s3"]
    wire.client.put_object(Bucket="a-bucket", Key=key, Body=body, Metadata=meta)
    request = wire.last()
    assert check(request) == ""
    assert check(request, "another secret") == "SignatureDoesNotMatch"
    for each in altered(request):
        assert check(each) in ("SignatureDoesNotMatch", "AccessDenied"), each
    assert check(request._replace(body=lambda: body + b"x")) == "XAmzContentSHA256Mismatch"
    assert check(request, at=16 * 60) == check(request, at=-16 * 60) == "RequestTimeTooSkewed"


@given(prefix=ODD, delimiter=ODD, after=ODD)
def test_queries_with_odd_values(prefix: str, delimiter: str, after: str) -> None:
    wire = WIRES["s3"]
    wire.client.list_objects_v2(Bucket="a-bucket", Prefix=prefix, Delimiter=delimiter, StartAfter=after)
    request = wire.last()
    assert check(request) == ""
    for each in altered(request):
        assert check(each) in ("SignatureDoesNotMatch", "AccessDenied"), each
    reordered = "&".join(reversed(request.query.split("&")))
    plain = request.query.replace("%2F", "/").replace("%3A", ":")
    assert check(request._replace(query=reordered)) == check(request._replace(query=plain)) == "", "AWS takes both"


@given(key=ODD, seconds=st.integers(1, 604800), disposition=ODD)
def test_presigned_urls(key: str, seconds: int, disposition: str) -> None:
    given_ = {"Bucket": "a-bucket", "Key": key, "ResponseContentDisposition": disposition}
    url = WIRES["s3"].client.generate_presigned_url("get_object", Params=given_, ExpiresIn=seconds)
    request = read(AWSRequest("GET", url))
    assert check(request) == ""
    assert check(request._replace(body=lambda: b"any")) == "", "a body isn't signed"
    assert check(request, at=seconds + 5) == check(request, at=-16 * 60) == "AccessDenied"
    assert check(request._replace(query=request.query.replace("X-Amz-Expires=", "X-Amz-Expires=9"))) != ""
    for each in altered(request):
        assert check(each) in ("SignatureDoesNotMatch", "AccessDenied", "IncompleteSignatureException"), each


@given(name=ODD, value=ODD)
def test_calls_of_other_services(name: str, value: str) -> None:
    """JSON, a form, and a path of REST with what a name has in it."""
    sagemaker, sts, functions = WIRES["sagemaker"], WIRES["sts"], WIRES["lambda"]
    sagemaker.client.add_tags(ResourceArn="arn:aws:a", Tags=[{"Key": "k", "Value": value}])
    sts.client.assume_role(RoleArn="arn:aws:iam::123456789012:role/a", RoleSessionName="abc", Policy=name)
    functions.client.list_versions_by_function(FunctionName=name, Marker=value)
    for wire in (sagemaker, sts, functions):
        request = wire.last()
        assert check(request) == ""
        assert check(request._replace(body=lambda: b"another")) == "InvalidSignatureException"
        for each in altered(request):
            if "x-amz-acl" not in each.headers:  # an unsigned header says nothing to other services
                assert check(each) in ("InvalidSignatureException", "AccessDenied"), each


def test_a_token_is_signed() -> None:
    wire = Wire("s3", "a-token")
    wire.client.list_buckets()
    request = wire.last()
    assert check(request) == "" and request.headers["x-amz-security-token"] == "a-token"
    other = {**request.headers, "x-amz-security-token": "another"}
    assert check(request._replace(headers=other)) == "SignatureDoesNotMatch"
    url = wire.client.generate_presigned_url("get_object", Params={"Bucket": "a-bucket", "Key": "k"})
    assert check(read(AWSRequest("GET", url))) == ""
    assert check(read(AWSRequest("GET", url.replace("a-token", "another")))) == "SignatureDoesNotMatch"


@pytest.mark.parametrize(
    "said", ["UNSIGNED-PAYLOAD", "STREAMING-UNSIGNED-PAYLOAD-TRAILER", "STREAMING-AWS4-HMAC-SHA256-PAYLOAD"]
)
def test_bodies_that_are_signed_otherwise(said: str) -> None:
    request = AWSRequest("PUT", "http://127.0.0.1/a-bucket/key", {"X-Amz-Content-SHA256": said}, b"body")
    signer = auth.S3SigV4Auth(KEYS, "s3", "us-east-1")
    signer.payload = lambda _: said
    signer.add_auth(request)
    assert request.headers["X-Amz-Content-SHA256"] == said
    assert check(read(request)._replace(body=lambda: b"chunks")) == ""
    changed = {**read(request).headers, "x-amz-content-sha256": "UNSIGNED-PAYLOAD-2"}
    assert check(read(request)._replace(headers=changed)) == "SignatureDoesNotMatch"


def test_a_presigned_call_of_another_service() -> None:
    """As clusters of EKS ask who somebody is."""
    request = AWSRequest(
        "GET", "http://127.0.0.1/?Action=GetCallerIdentity&Version=2011-06-15", {"X-K8s-Aws-Id": "a b"}
    )
    auth.SigV4QueryAuth(KEYS, "sts", "us-east-1", expires=60).add_auth(request)
    assert check(read(request)) == "" and check(read(request), at=65) == "AccessDenied"
    assert check(read(request)._replace(headers={**read(request).headers, "x-k8s-aws-id": "b"})) != ""


def test_headers_that_boto3_leaves_out_may_be_signed() -> None:
    """As Java's first SDK signs User-Agent; spaces count once, and names have no case."""
    request = AWSRequest(
        "GET", "http://127.0.0.1/a-bucket", {"User-Agent": "  a   client ", "X-Amz-Content-SHA256": "UNSIGNED-PAYLOAD"}
    )
    signer = auth.S3SigV4Auth(KEYS, "s3", "us-east-1")
    kept, auth.SIGNED_HEADERS_BLACKLIST = auth.SIGNED_HEADERS_BLACKLIST, []
    try:
        signer.add_auth(request)
    finally:
        auth.SIGNED_HEADERS_BLACKLIST = kept
    assert "user-agent" in request.headers["Authorization"] and check(read(request)) == ""


@pytest.mark.parametrize(
    "header",
    [
        "Basic YTpi",
        "AWS4-HMAC-SHA256 Credential=a/b, SignedHeaders=host, Signature=c",
        "AWS4-HMAC-SHA256 ",
        "AWS4-HMAC-SHA256 x",
        "AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/20260101/us-east-1/s3/aws4_request, SignedHeaders=x-a, Signature=c",
    ],
)
def test_a_signature_that_lacks_something(header: str) -> None:
    headers = {"authorization": header, "host": "a", "x-amz-date": "20260101T000000Z"}
    assert check(Signed("GET", "/", "", headers, bytes)) == "IncompleteSignatureException"


def test_what_isnt_signed_is_nobodys() -> None:
    assert claim_of(Signed("GET", "/", "", {"host": "a"}, bytes)) is None
    with pytest.raises(ApiError, match="This is Version 2"):
        refuse_version_2(Signed("GET", "/", "", {"authorization": "AWS AKIDEXAMPLE:c2ln"}, bytes))


def fetch(url: str, data: bytes | None = None, **headers: str) -> bytes:
    given_ = {name.replace("_", "-"): value for name, value in headers.items()}
    with urllib.request.urlopen(urllib.request.Request(url, data, given_, method="PUT" if data else "GET")) as answer:
        body: bytes = answer.read()
        return body


ODD_KEY = "odd/ +%2B&=?#~*'()!:;,@$[]é日本//./../end "


def test_a_server_takes_and_gives_objects_with_odd_keys(account: Account) -> None:
    account.put(ODD_KEY, b"odd")
    assert account.get(ODD_KEY) == b"odd" and account.keys("odd/ +") == [ODD_KEY]
    client = account.server.client("s3")
    place = {"Bucket": BUCKET, "Key": ODD_KEY}
    assert fetch(client.generate_presigned_url("get_object", Params=place)) == b"odd"
    fetch(client.generate_presigned_url("put_object", Params=place), b"even", Content_Type="")
    assert account.get(ODD_KEY) == b"even"


def test_a_server_refuses_version_2_by_name(account: Account) -> None:
    """boto3 presigns so by default."""
    old = account.server.client("s3", config=Config(signature_version="s3"))
    url = old.generate_presigned_url("get_object", Params={"Bucket": BUCKET, "Key": "a"})
    assert "AWSAccessKeyId" in url
    with pytest.raises(urllib.error.HTTPError) as caught:
        fetch(url)
    with caught.value as answer:
        said = answer.read().decode()
    assert answer.code == 400 and "<Code>InvalidRequest</Code>" in said and "signature_version='s3v4'" in said
    with pytest.raises(ClientError, match="This is Version 2"):
        old.list_buckets()
