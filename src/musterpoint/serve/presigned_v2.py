"""Checks S3's older presigned URLs (AWS Signature Version 2), which boto3 makes by default.

The algorithm is that of `RESTAuthentication`_.

.. _RESTAuthentication: https://docs.aws.amazon.com/AmazonS3/latest/userguide/RESTAuthentication.html
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import urllib.parse

from musterpoint.serve.errors import ApiError
from musterpoint.serve.signatures import Signed

_NAMES = (
    "acl accelerate analytics cors delete inventory lifecycle location logging metrics notification partNumber policy "
    "requestPayment restore tagging torrent uploadId uploads versionId versioning versions website "
    "response-cache-control response-content-disposition response-content-encoding response-content-language "
    "response-content-type response-expires"
)
_SUBRESOURCES = frozenset(_NAMES.split())
"""What of a query is signed."""


def key_of(request: Signed) -> str:
    """The access key of such a URL; empty: it is none."""
    query = _query(request)
    return query["AWSAccessKeyId"] if {"AWSAccessKeyId", "Signature", "Expires"} <= query.keys() else ""


def verify(request: Signed, secret: str, now: float) -> None:
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
    if not hmac.compare_digest(wanted, query["Signature"]):
        raise ApiError("SignatureDoesNotMatch", "The request signature we calculated does not match", 403)
    if not query["Expires"].isdecimal() or float(query["Expires"]) < now:
        raise ApiError("AccessDenied", "Request has expired", 403)


def _query(request: Signed) -> dict[str, str]:
    return dict(urllib.parse.parse_qsl(request.query, keep_blank_values=True))
