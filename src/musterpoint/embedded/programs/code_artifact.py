"""Asks CodeArtifact where a repository's index is, and for a fresh token.

Runs in a Python that has boto3, without musterpoint. Facts go to stdout, one JSON object a line; the last is ``done``,
``lacks`` (a library) or ``error``.
"""

from __future__ import annotations

import signal
from typing import Any

from musterpoint.embedded.programs.transfer import emit
from musterpoint.embedded.programs.transfer_s3 import Aws, Lacks, StoreError


def main(request: dict[str, Any]) -> int:
    """``request``: ``uri`` (the ARN), ``region``, ``owner``, ``domain`` and ``repository``."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # a stop ends it without a traceback
    try:
        emit(done=index(Aws({"region": request["region"]}), request))
    except Lacks as error:
        emit(lacks=str(error))
    except StoreError as error:
        emit(error=str(error))
    else:
        return 0
    return 1


def index(aws: Aws, request: dict[str, Any]) -> dict[str, Any]:
    """The index's ``url``, and the ``token`` that is its password.

    Raises:
        StoreError: who asks may not, or nobody answers.
    """
    domain = {"domain": request["domain"], "domainOwner": request["owner"]}
    try:
        client = aws.client("codeartifact", connect_timeout=10, read_timeout=30)
        token = client.get_authorization_token(**domain)["authorizationToken"]
        where = client.get_repository_endpoint(**domain, repository=request["repository"], format="pypi")
    except Exception as error:
        rights = "codeartifact:GetAuthorizationToken, codeartifact:GetRepositoryEndpoint and sts:GetServiceBearerToken"
        raise aws.explain(error, request["uri"], rights) from None
    return {"token": token, "url": where["repositoryEndpoint"]}
