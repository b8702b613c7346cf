"""Checks the AWS signature of a request: Version 4, in its headers or in the query of a presigned URL, and Version 2 of
S3's older presigned URLs, which boto3 makes by default.

The algorithms are AWS's (`version 4`_, `version 2`_). The answers are its own, too: a wrong secret, an old request.

.. _version 4: https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_sigv-create-signed-request.html
.. _version 2: https://docs.aws.amazon.com/AmazonS3/latest/userguide/RESTAuthentication.html
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import urllib.parse
from datetime import datetime, timezone
from typing import Callable, Mapping, NamedTuple, Sequence

from musterpoint.serve.errors import ApiError

ALGORITHM = "AWS4-HMAC-SHA256"
MOST_SKEW = 15 * 60.0
"""Seconds that the clocks of client and server may differ."""
_TIME = "%Y%m%dT%H%M%SZ"
_NAMES = (
    "acl accelerate analytics cors delete inventory lifecycle location logging metrics notification partNumber policy "
    "requestPayment restore tagging torrent uploadId uploads versionId versioning versions website "
    "response-cache-control response-content-disposition response-content-encoding response-content-language "
    "response-content-type response-expires"
)
_SUBRESOURCES = frozenset(_NAMES.split())
"""What of a query is signed."""


class Signed(NamedTuple):
    """A request as it was signed.

    ``path``: as it stands in the request line, still escaped. ``query``: likewise. ``headers``: names in lower case.
    ``digest``: gives the SHA-256 of the body in hexadecimal; asked only where no header has it.
    """

    method: str
    path: str
    query: str
    headers: Mapping[str, str]
    digest: Callable[[], str]


class Scope(NamedTuple):
    """Who signed a request, and for what."""

    access_key: str
    region: str
    service: str


class Claim(NamedTuple):
    """What a request says about its signature."""

    scope: Scope
    date: str
    headers: Sequence[str]
    signature: str
    at: str
    presigned: bool
    lasts: float = MOST_SKEW


def claim_of(request: Signed) -> Claim | None:
    """What ``request`` says of its signature; None: it isn't signed.

    Raises:
        ApiError: it can't be read.
    """
    header = request.headers.get("authorization", "")
    query = dict(urllib.parse.parse_qsl(request.query, keep_blank_values=True))
    if header:
        algorithm, _, rest = header.partition(" ")
        if algorithm != ALGORITHM:
            raise ApiError("IncompleteSignatureException", f"expected {ALGORITHM}, got {algorithm}", 403)
        parts = dict(part.strip().partition("=")[::2] for part in rest.split(","))
        at = request.headers.get("x-amz-date", "")
        return _claim(parts.get("Credential", ""), parts.get("SignedHeaders", ""), parts.get("Signature", ""), at)
    if query.get("X-Amz-Algorithm") == ALGORITHM:
        claim = _claim(
            query.get("X-Amz-Credential", ""),
            query.get("X-Amz-SignedHeaders", ""),
            query.get("X-Amz-Signature", ""),
            query.get("X-Amz-Date", ""),
        )
        lasts = query.get("X-Amz-Expires", "")
        return claim._replace(presigned=True, lasts=float(lasts) if lasts.isdecimal() else 0.0)
    return None


def _claim(credential: str, headers: str, signature: str, at: str) -> Claim:
    words = credential.split("/")
    if len(words) < 5 or not signature or not headers or not at:
        raise ApiError("IncompleteSignatureException", "the signature lacks a part, or its date", 403)
    access_key, (date, region, service) = "/".join(words[:-4]), words[-4:-1]
    return Claim(Scope(access_key, region, service), date, headers.split(";"), signature, at, False)


def verify(request: Signed, claim: Claim, secret: str, now: float) -> None:
    """Returns where ``request`` was signed with ``secret``.

    Raises:
        ApiError: it wasn't, or too long ago.
    """
    wanted = sign(request, claim, secret)
    if not hmac.compare_digest(wanted.encode(), claim.signature.encode()):
        raise ApiError(
            "SignatureDoesNotMatch" if claim.scope.service == "s3" else "InvalidSignatureException",
            "The request signature we calculated does not match the signature you provided. Check your AWS Secret "
            "Access Key and signing method. Consult the service documentation for details.",
            403,
        )
    try:
        at = datetime.strptime(claim.at, _TIME).replace(tzinfo=timezone.utc).timestamp()
    except ValueError:
        raise ApiError("IncompleteSignatureException", f"X-Amz-Date {claim.at!r} isn't a time", 403) from None
    if at - now > MOST_SKEW or now - at > claim.lasts:
        code = "RequestTimeTooSkewed" if claim.scope.service == "s3" else "InvalidSignatureException"
        text = "Request has expired" if claim.presigned else f"Signature expired: {claim.at} is too far from now"
        raise ApiError("AccessDenied" if claim.presigned else code, text, 403)


def sign(request: Signed, claim: Claim, secret: str) -> str:
    """The signature that ``request`` has where it was signed with ``secret``."""
    for_s3 = claim.scope.service == "s3"
    path = request.path or "/"
    canonical = "\n".join(
        [
            request.method,
            path if for_s3 else urllib.parse.quote(path, safe="/-_.~"),
            _canonical_query(request.query),
            *(f"{name}:{' '.join(request.headers.get(name, '').split())}" for name in claim.headers),
            "",
            ";".join(claim.headers),
            _digest(request, claim, for_s3),
        ]
    )
    scope = f"{claim.date}/{claim.scope.region}/{claim.scope.service}/aws4_request"
    text = "\n".join([ALGORITHM, claim.at, scope, hashlib.sha256(canonical.encode()).hexdigest()])
    key = b"AWS4" + secret.encode()
    for word in scope.split("/"):
        key = hmac.new(key, word.encode(), hashlib.sha256).digest()
    return hmac.new(key, text.encode(), hashlib.sha256).hexdigest()


def _digest(request: Signed, claim: Claim, for_s3: bool) -> str:
    if claim.presigned and for_s3:
        return "UNSIGNED-PAYLOAD"
    said = request.headers.get("x-amz-content-sha256", "")
    return said if said and for_s3 else request.digest()


def _canonical_query(query: str) -> str:
    pairs = urllib.parse.parse_qsl(query, keep_blank_values=True, strict_parsing=False)
    quoted = [(urllib.parse.quote(name, safe="-_.~"), urllib.parse.quote(value, safe="-_.~")) for name, value in pairs]
    return "&".join(f"{name}={value}" for name, value in sorted(quoted) if name != "X-Amz-Signature")


def key_of_version_2(request: Signed) -> str:
    """The access key of such a URL; empty: it is none."""
    query = _query(request)
    return query["AWSAccessKeyId"] if {"AWSAccessKeyId", "Signature", "Expires"} <= query.keys() else ""


def verify_version_2(request: Signed, secret: str, now: float) -> None:
    """Returns where the URL was signed with ``secret``, and hasn't expired.

    Raises:
        ApiError: it wasn't, or has.
    """
    query = _query(request)
    amazon = sorted((name, value) for name, value in request.headers.items() if name.startswith("x-amz-"))
    named = sorted((name, value) for name, value in query.items() if name in _SUBRESOURCES)
    pairs = "&".join(f"{name}={value}" if value else name for name, value in named)
    text = "\n".join(
        [
            request.method,
            request.headers.get("content-md5", ""),
            request.headers.get("content-type", ""),
            query["Expires"],
            *(f"{name}:{value}" for name, value in amazon),
            request.path + (f"?{pairs}" if pairs else ""),
        ]
    )
    wanted = base64.b64encode(hmac.new(secret.encode(), text.encode(), hashlib.sha1).digest()).decode()
    if not hmac.compare_digest(wanted.encode(), query["Signature"].encode()):
        raise ApiError("SignatureDoesNotMatch", "The request signature we calculated does not match", 403)
    if not query["Expires"].isdecimal() or float(query["Expires"]) < now:
        raise ApiError("AccessDenied", "Request has expired", 403)


def _query(request: Signed) -> dict[str, str]:
    return dict(urllib.parse.parse_qsl(request.query, keep_blank_values=True))
