"""Checks the AWS signature of a request. botocore signs it again, as its client did, and the two are compared.

Version 4 is taken, in headers and in the query of a presigned URL. Version 2, which AWS itself takes for old buckets
only, is refused by name. The signatures of a body's chunks (``STREAMING-…``) aren't looked at.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import urllib.parse
from datetime import datetime, timezone
from typing import Any, Callable, Mapping, NamedTuple, Sequence

from botocore.auth import S3SigV4Auth, S3SigV4QueryAuth, SigV4Auth, SigV4QueryAuth
from botocore.awsrequest import AWSRequest, HTTPHeaders
from botocore.credentials import Credentials

from musterpoint.serve.errors import ApiError

ALGORITHM = "AWS4-HMAC-SHA256"
MOST_SKEW = 15 * 60.0
"""Seconds that the clocks of client and server may differ."""
_TIME = "%Y%m%dT%H%M%SZ"
_DIGEST = "x-amz-content-sha256"
_VERSION_2 = {"AWSAccessKeyId", "Signature", "Expires"}
"""In the query of a URL that was presigned so."""
_SIGNERS: Mapping[tuple[bool, bool], Any] = {
    (False, False): SigV4Auth,
    (False, True): SigV4QueryAuth,
    (True, False): S3SigV4Auth,
    (True, True): S3SigV4QueryAuth,
}
"""By whether a request is S3's, and whether its URL is presigned."""


class Signed(NamedTuple):
    """A request as it was signed.

    ``path``: as it stands in the request line, still escaped. ``query``: likewise. ``headers``: names in lower case.
    ``body``: reads the body; called only where the signature covers it.
    """

    method: str
    path: str
    query: str
    headers: Mapping[str, str]
    body: Callable[[], bytes]


class Claim(NamedTuple):
    """The words of a request about its signature.

    ``headers``: the names of those that are signed. ``at``: when, as text. ``lasts``: seconds from then.
    """

    access_key: str
    region: str
    service: str
    at: str
    headers: Sequence[str]
    signature: str
    presigned: bool
    lasts: float


def refuse_version_2(request: Signed) -> None:
    """An ApiError where the request has a signature of Version 2."""
    if request.headers.get("authorization", "").startswith("AWS ") or _parameters(request).keys() >= _VERSION_2:
        text = (
            f"The authorization mechanism you have provided is not supported. Please use {ALGORITHM}. This is Version "
            "2: boto3 presigns by Signature Version 4 where its client has Config(signature_version='s3v4')"
        )
        raise ApiError("InvalidRequest", text)


def claim_of(request: Signed) -> Claim | None:
    """The words of ``request`` about its signature; None: it isn't signed.

    Raises:
        ApiError: it can't be read.
    """
    header, query = request.headers.get("authorization", ""), _parameters(request)
    if header:
        algorithm, _, rest = header.partition(" ")
        if algorithm != ALGORITHM:
            raise ApiError("IncompleteSignatureException", f"expected {ALGORITHM}, got {algorithm}", 403)
        given = dict(part.strip().partition("=")[::2] for part in rest.split(","))
        given["Date"] = request.headers.get("x-amz-date", "")
        lasts = MOST_SKEW
    elif query.get("X-Amz-Algorithm") == ALGORITHM:
        given = {name.removeprefix("X-Amz-"): value for name, value in query.items()}
        lasts = float(given["Expires"]) if given.get("Expires", "").isdecimal() else 0.0
    else:
        return None
    words, names = given.get("Credential", "").split("/"), given.get("SignedHeaders", "").split(";")
    if len(words) < 5 or "host" not in names or not given.get("Signature") or not given["Date"]:
        text = "the signature lacks a part, or its date, or doesn't cover the header host"
        raise ApiError("IncompleteSignatureException", text, 403)
    region, service = words[-3:-1]
    return Claim("/".join(words[:-4]), region, service, given["Date"], names, given["Signature"], not header, lasts)


def verify(request: Signed, claim: Claim, secret: str, now: float) -> None:
    """Returns where ``request`` was signed with ``secret``.

    Raises:
        ApiError: it wasn't, or too long ago; or it has changed since.
    """
    for_s3 = claim.service == "s3"
    signature = sign(request, claim, secret) if request.headers.keys() >= {*claim.headers} else ""
    if not hmac.compare_digest(signature.encode(), claim.signature.encode()):
        raise ApiError(
            "SignatureDoesNotMatch" if for_s3 else "InvalidSignatureException",
            "The request signature we calculated does not match the signature you provided. Check your AWS Secret "
            "Access Key and signing method. Consult the service documentation for details.",
            403,
        )
    try:
        at = datetime.strptime(claim.at, _TIME).replace(tzinfo=timezone.utc).timestamp()
    except ValueError:
        raise ApiError("IncompleteSignatureException", f"X-Amz-Date {claim.at!r} isn't a time", 403) from None
    if at - now > MOST_SKEW or now - at > claim.lasts:
        code = "RequestTimeTooSkewed" if for_s3 else "InvalidSignatureException"
        text = "Request has expired" if claim.presigned else f"Signature expired: {claim.at} is too far from now"
        raise ApiError("AccessDenied" if claim.presigned else code, text, 403)
    unsigned = [name for name in request.headers if name.startswith("x-amz-") and name not in claim.headers]
    if for_s3 and unsigned:
        text = f"There were headers present in the request which were not signed: {', '.join(unsigned)}"
        raise ApiError("AccessDenied", text, 403)
    said = request.headers.get(_DIGEST, "")
    if re.fullmatch("[0-9a-f]{64}", said) and hashlib.sha256(request.body()).hexdigest() != said:
        text = "The provided 'x-amz-content-sha256' header does not match what was computed."
        raise ApiError("XAmzContentSHA256Mismatch", text)


def sign(request: Signed, claim: Claim, secret: str) -> str:
    """The signature that ``request`` has where it was signed with ``secret``."""
    headers = HTTPHeaders()
    for name in claim.headers:
        headers[name] = request.headers[name]
    again = AWSRequest(request.method, f"http://host{request.path or '/'}?{_signed_query(request.query)}", headers)
    again.context["timestamp"] = claim.at
    for_s3 = claim.service == "s3"
    if _DIGEST not in claim.headers and not (for_s3 and claim.presigned):
        again.data = request.body()
    signer = _SIGNERS[for_s3, claim.presigned](Credentials(claim.access_key, secret), claim.service, claim.region)
    signer.headers_to_sign = lambda _: headers  # others sign headers that botocore leaves out, such as User-Agent
    found: str = signer.signature(signer.string_to_sign(again, signer.canonical_request(again)), again)
    return found


def _signed_query(query: str) -> str:
    """The query without its signature, each byte escaped as AWS has it. Clients may escape fewer."""
    pairs = [pair.partition("=")[::2] for pair in query.replace("+", " ").split("&") if pair]
    return "&".join(f"{_escaped(name)}={_escaped(value)}" for name, value in pairs if name != "X-Amz-Signature")


def _escaped(text: str) -> str:
    return urllib.parse.quote(urllib.parse.unquote_to_bytes(text), safe="-_.~")


def _parameters(request: Signed) -> dict[str, str]:
    return dict(urllib.parse.parse_qsl(request.query, keep_blank_values=True))
