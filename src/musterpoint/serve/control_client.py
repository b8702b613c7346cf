"""Asks a running server for what AWS's API doesn't have: a job's end awaited, faults on demand."""

from __future__ import annotations

import json
import urllib.error
import urllib.parse
import urllib.request
from typing import Any, Mapping

from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

from musterpoint.base.errors import UsageError

SERVICE = "muster"
PATH = "/_muster/jobs/"
_MORE = 30.0
"""Seconds that an answer may take beyond what was asked."""


class ControlClient:
    """``variables``: what a client of the server exports."""

    def __init__(self, variables: Mapping[str, str]) -> None:
        self._url, self._region = variables["AWS_ENDPOINT_URL"], variables["AWS_REGION"]
        self._keys = Credentials(variables["AWS_ACCESS_KEY_ID"], variables["AWS_SECRET_ACCESS_KEY"])
        self._open = urllib.request.build_opener(urllib.request.ProxyHandler({})).open

    def ask(self, job: str, what: str, parameters: Mapping[str, Any], timeout: float = 600.0) -> dict[str, Any]:
        """The server's answer.

        Raises:
            UsageError: it refuses, or there is no server.
            TimeoutError: what was waited for hasn't come.
        """
        url = f"{self._url}{PATH}{urllib.parse.quote(job, safe='')}/{what}"
        request = AWSRequest("POST", url, data=json.dumps(parameters).encode())
        SigV4Auth(self._keys, SERVICE, self._region).add_auth(request)
        headers = dict(request.headers.items())
        try:
            with self._open(urllib.request.Request(url, request.data, headers), timeout=timeout + _MORE) as answer:
                found: dict[str, Any] = json.load(answer)
                return found
        except urllib.error.HTTPError as error:
            with error:
                text = json.loads(error.read()).get("message", str(error))
            raise (TimeoutError if error.code == 408 else UsageError)(text) from None
        except urllib.error.URLError as error:
            raise UsageError(f"no server answers at {self._url}: {error.reason}") from None
