"""boto3 as a job uses it, and what it refuses as a sentence. Runs in a Python that has boto3, without musterpoint."""

from __future__ import annotations

import importlib
from typing import Any

from musterpoint.embedded.programs.stores import Lacks, StoreError, brief

TRIES = 4
"""Tries of one request before it has failed."""
IDENTITY_SECONDS = 3
TRANSIENT = (  # the last: an upload in parts that was ended meanwhile begins anew
    "SlowDown",
    "RequestTimeout",
    "RequestTimeTooSkewed",
    "Throttling",
    "ThrottlingException",
    "InternalError",
    "ServiceUnavailable",
    "TooManyRequests",
    "NoSuchUpload",
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


class Aws:
    """The SDK's own chain of credentials. ``access``: ``region`` and ``endpoint``, both may be empty.

    ``errors``: botocore's.

    Raises:
        Lacks: this Python has no boto3.
    """

    def __init__(self, access: dict[str, Any]) -> None:
        self._access, self._who = access, ""
        self._boto3 = library("boto3")
        self.errors = library("botocore.exceptions")

    def client(self, service: str, connections: int = 10, tries: int = TRIES, **times: Any) -> Any:
        """A client of ``service``. Raises whatever a wrong profile or endpoint does."""
        config = importlib.import_module("botocore.config").Config(
            max_pool_connections=connections, retries={"mode": "standard", "total_max_attempts": tries}, **times
        )
        more = {"endpoint_url": self._access["endpoint"]} if self._access.get("endpoint") else {}
        return self._boto3.client(service, region_name=self._access.get("region") or None, config=config, **more)

    def explain(self, error: BaseException, where: str, takes: str) -> StoreError:
        """What went wrong at ``where``; ``takes``: what who asked must be allowed to do, for example "s3:GetObject"."""
        errors = self.errors
        if isinstance(error, (errors.NoCredentialsError, errors.PartialCredentialsError)):
            return StoreError(
                f"{where}: there are no AWS credentials on this host: give the job a role, or set AWS_ACCESS_KEY_ID "
                "and its like"
            )
        if isinstance(error, errors.NoRegionError):
            return StoreError(f"{where}: no AWS region is known: set AWS_REGION")
        if isinstance(error, errors.ClientError):
            status, code = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0), code_of(error)
            if code in DENIED:
                words = error.response.get("Error", {}).get("Message", "")
                return StoreError(f"{where} was refused to {self._identity()} ({code}: {words}): it takes {takes}")
            return StoreError(f"{where}: {brief(error)}", status >= 500 or status == 429 or code in TRANSIENT)
        absent = (errors.EndpointConnectionError, errors.ConnectTimeoutError, errors.ProxyConnectionError)
        if isinstance(error, (errors.HTTPClientError, *absent)):
            found = StoreError(f"{where}: {brief(error)}; has this host a network?", passing=True)
            found.unreachable = isinstance(error, absent)
            return found
        passing = isinstance(error, (errors.IncompleteReadError, errors.ConnectionError)) or "Cancel" in str(
            type(error)
        )
        return StoreError(f"{where}: {brief(error)}", passing)

    def _identity(self) -> str:
        """Who we are to AWS, for a message; asked once."""
        self._who = self._who or self._asked_identity()
        return self._who

    def _asked_identity(self) -> str:
        try:
            times = {"connect_timeout": IDENTITY_SECONDS, "read_timeout": IDENTITY_SECONDS}
            found = self.client("sts", 1, 1, **times).get_caller_identity().get("Arn", "")
            if found:
                return str(found)
        except Exception:
            pass  # no network to STS, or an S3 of others, which has none
        try:
            credentials = self._boto3.Session().get_credentials()
            return f"the access key ...{credentials.access_key[-4:]} (from {credentials.method})"
        except Exception:
            return "these credentials"


def library(name: str) -> Any:
    """A module of boto3's libraries. Raises Lacks where there is none."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise Lacks("boto3" if error.name in ("boto3", "botocore", "s3transfer") else str(error)) from None


def code_of(error: Any) -> str:
    """AWS's short name of what it refused; "?": it wasn't AWS. botocore's errors of HTTP have no response, or None."""
    return str((getattr(error, "response", None) or {}).get("Error", {}).get("Code", "?"))
