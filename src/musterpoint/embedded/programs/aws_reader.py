"""Run by :mod:`musterpoint.core.code.aws` in a Python that has boto3; musterpoint itself isn't there.

One request comes as JSON in the variable MUSTER_AWS_REQUEST; facts, then the answer, go to stdout, one JSON object a
line. The exit status is the request's ``no_boto3`` where there is no boto3, 1 for any other failure.
"""

from __future__ import annotations

import importlib
import json
import os
import signal
import sys
import time
from typing import Any

CHUNK = 256 * 1024
FAILURES = 6
"""Most failed reads in a row, with less than :data:`HEADWAY` bytes in between."""
HEADWAY = 1024 * 1024
RIGHTS = {"get": "s3:GetObject", "index": "codeartifact:GetAuthorizationToken"}
TRANSIENT = ("SlowDown", "RequestTimeout", "RequestTimeTooSkewed", "Throttling", "ThrottlingException", "InternalError")


def emit(**facts: Any) -> None:
    sys.stdout.write(json.dumps(facts) + "\n")
    sys.stdout.flush()


class Failed(Exception):
    """A failure that a retry doesn't solve, as a sentence."""


def main(request: dict[str, Any]) -> int:
    try:
        boto3, configuration = importlib.import_module("boto3"), importlib.import_module("botocore.config")
        errors = importlib.import_module("botocore.exceptions")
    except ImportError as error:
        emit(error=str(error))
        return int(request["no_boto3"])
    config = configuration.Config(
        connect_timeout=10, read_timeout=30, retries={"mode": "standard", "total_max_attempts": 2}
    )
    more = {"endpoint_url": request["endpoint"]} if request["endpoint"] else {}
    try:
        service = {"get": "s3", "index": "codeartifact"}[request["action"]]
        client = boto3.client(service, region_name=request["region"] or None, config=config, **more)
        answer = get(client, errors, request) if service == "s3" else index(client, request)
    except (Failed, errors.ClientError, errors.BotoCoreError, OSError, ValueError) as error:
        emit(error=sentence(error, errors, request))
        return 1
    emit(done=True, **answer)
    return 0


def get(client: Any, errors: Any, request: dict[str, Any]) -> dict[str, Any]:
    """Downloads the object, over several connections if one breaks, always the same version."""
    started = reported = time.monotonic()
    place = {"Bucket": request["bucket"], "Key": request["key"]}
    at, size, failures, failed_at = 0, -1, 0, 0
    same: dict[str, str] = {}
    with open(request["path"], "wb") as file:
        while at != size:
            try:
                part = {"Range": f"bytes={at}-"} if at else {}
                answer = client.get_object(**place, **same, **part)
                if size < 0:
                    size, same = answer["ContentLength"], {"IfMatch": answer["ETag"]}
                    disk = os.statvfs(os.path.dirname(request["path"]))
                    if size > (free := disk.f_bavail * disk.f_frsize):
                        raise Failed(f"it has {size:,} bytes, and this host's disk has room for {free:,}")
                elif at and answer["ResponseMetadata"]["HTTPStatusCode"] != 206:
                    at = file.seek(0)  # this S3 knows no ranges
                    file.truncate()
                while piece := answer["Body"].read(CHUNK):
                    write(file, piece)
                    at += len(piece)
                    if time.monotonic() - reported >= 1.0:
                        reported = time.monotonic()
                        emit(at=at, size=size, seconds=reported - started)
                if at > size:
                    raise Failed(f"it was said to have {size:,} bytes, and has more")
                if at < size:
                    raise errors.IncompleteReadError(actual_bytes=at, expected_bytes=size)
            except (errors.ClientError, errors.BotoCoreError) as error:
                if not is_transient(error, errors):
                    raise
                if at - failed_at >= HEADWAY:
                    failures = 0
                failures, failed_at = failures + 1, at
                if failures >= FAILURES:
                    raise Failed(f"{failures} tries failed, the last with: {brief(error)}") from None
                early = isinstance(error, errors.IncompleteReadError)
                emit(retry="the connection ended early" if early else brief(error), at=at)
                time.sleep(min(2.0**failures / 8, 8.0))
    return {"size": size}


def write(file: Any, piece: bytes) -> None:
    try:
        file.write(piece)
    except OSError as error:
        raise Failed(f"it can't be written to this host's disk: {error.strerror}") from None


def index(client: Any, request: dict[str, Any]) -> dict[str, Any]:
    domain = {"domain": request["domain"], "domainOwner": request["owner"]}
    token = client.get_authorization_token(**domain)["authorizationToken"]
    where = client.get_repository_endpoint(**domain, repository=request["repository"], format="pypi")
    return {"token": token, "url": where["repositoryEndpoint"]}


def is_transient(error: Any, errors: Any) -> bool:
    if isinstance(error, errors.ClientError):
        status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
        return status >= 500 or status == 429 or error.response.get("Error", {}).get("Code") in TRANSIENT
    return isinstance(error, (errors.HTTPClientError, errors.IncompleteReadError))


def brief(error: Any) -> str:
    """The last part of a chain of messages, on one line."""
    return " ".join(str(error).split())[:300]


def sentence(error: Any, errors: Any, request: dict[str, Any]) -> str:
    """What went wrong, and what to do about it."""
    if isinstance(error, (errors.NoCredentialsError, errors.PartialCredentialsError)):
        return "there are no AWS credentials on this host: give the job a role, or set AWS_ACCESS_KEY_ID and its like"
    if isinstance(error, errors.NoRegionError):
        return "no AWS region is known: set AWS_REGION"
    if isinstance(error, errors.ClientError):
        found = error.response.get("Error", {})
        code, words = found.get("Code", "?"), found.get("Message", "")
        if code in ("NoSuchKey", "404") and request["action"] == "get":
            return f"there is no object {request['key']!r} in the bucket {request['bucket']!r}"
        if code == "NoSuchBucket":
            return f"there is no bucket {request['bucket']!r}"
        if code == "PreconditionFailed":
            return "the object was replaced by another one while it was being read"
        if code in ("AccessDenied", "403", "AccessDeniedException"):
            right = RIGHTS[request["action"]]
            return f"access denied ({words}): the job's role needs {right}, and the object's KMS key if it has one"
        return brief(error)
    if isinstance(error, errors.HTTPClientError):
        return f"{brief(error)}; has this host a network?"
    return brief(error)


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # a stop ends it without a traceback
    sys.exit(main(json.loads(os.environ["MUSTER_AWS_REQUEST"])))
