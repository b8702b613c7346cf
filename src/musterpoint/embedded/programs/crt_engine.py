"""AWS's CRT, which moves S3's bytes where AWS's own tools choose it, as s3transfer runs it; threads do what it can't.

Runs in a Python that has boto3, without musterpoint.
"""

from __future__ import annotations

import importlib
import re
from typing import Any

LOCK = "musterpoint-{}"
"""One process of a host runs the CRT for a store: that is quicker than several, says s3transfer. Others use threads."""
OLDEST = (0, 19, 18)
"""The oldest that boto3 takes."""
PART, REQUESTS = 8 * 1024**2, 8
"""Bytes of a part and requests at a time: the CRT holds several parts of each request, and ranks need the memory."""
MOST = 1000
"""Transfers of one manager, which notes each for as long as it lives."""
MOVED = ("301", "PermanentRedirect", "AuthorizationHeaderMalformed", "IllegalLocationConstraintException")
"""What S3 says of a bucket of another region, which botocore follows and the CRT doesn't."""
LOCAL = ("AWS_ERROR_FILE_", "AWS_ERROR_NO_SPACE", "AWS_ERROR_NO_PERMISSION")
"""Begin the CRT's names of what this host's disk refuses."""
SHORTER = "AWS_ERROR_S3_INCORRECT_CONTENT_LENGTH"
ANSWERED = ("AWS_AUTH_", "AWS_ERROR_S3_")
"""Begin its names of failures to sign, and of what the store answered: the network is there."""
ABSENT = (
    "AWS_IO_DNS_",
    "AWS_IO_SOCKET_CONNECTION_REFUSED",
    "AWS_IO_SOCKET_NO_ROUTE_TO_HOST",
    "AWS_IO_SOCKET_NETWORK_DOWN",
    "AWS_IO_SOCKET_TIMEOUT",
)
"""Begin its names of connections that never came about."""


class Crt:
    """The CRT for transfers as those of ``client``."""

    def __init__(self, crt: Any, client: Any, session: Any, credentials: Any) -> None:
        url, region = client.meta.endpoint_url, client.meta.region_name
        trusted = importlib.import_module("botocore.httpsession").get_cert_path
        wrapper = crt.BotocoreCRTCredentialsWrapper(credentials)
        self._crt = crt
        self._config = importlib.import_module("s3transfer.manager").TransferConfig(
            multipart_threshold=PART, multipart_chunksize=PART, max_request_concurrency=REQUESTS
        )
        self._client = crt.create_s3_crt_client(
            region,
            wrapper.to_crt_credentials_provider(),
            use_ssl=not url.startswith("http://"),
            verify=session.get_config_variable("ca_bundle") or trusted(True),
        )
        self._serializer = crt.BotocoreCRTRequestSerializer(session, {"region_name": region, "endpoint_url": url})
        self._left = 0
        self._manager: Any = None

    def manager(self) -> Any:
        """What begins the next transfer."""
        if not self._left:
            self._manager = self._crt.CRTTransferManager(self._client, self._serializer, config=self._config)
            self._left = MOST
        self._left -= 1
        return self._manager


def crt_engine(client: Any) -> Crt | None:
    """The CRT; None where it isn't installed or chosen, can't do what is asked for, or runs in another process here."""
    try:
        crt, version = importlib.import_module("s3transfer.crt"), importlib.import_module("awscrt").__version__
        if tuple(map(int, version.split("."))) < OLDEST:
            return None
        session = importlib.import_module("botocore.session").get_session()
        if not _is_preferred(session):
            return None
        credentials = session.get_credentials()
        lock = LOCK.format(re.sub("[^a-z0-9]+", "-", client.meta.endpoint_url.lower()))
        if credentials is None or not _suits(client) or crt.acquire_crt_s3_process_lock(lock) is None:
            return None
        return Crt(crt, client, session, credentials)
    except Exception:  # versions that don't fit, or no native library for this machine
        return None


def _is_preferred(session: Any) -> bool:
    """Whether AWS's command line would take it: ``preferred_transfer_client`` of the profile's ``s3``."""
    said = session.get_scoped_config().get("s3")
    chosen = str(said.get("preferred_transfer_client", "auto") if isinstance(said, dict) else "auto").lower()
    return chosen == "crt" or (chosen == "auto" and importlib.import_module("awscrt.s3").is_optimized_for_system())


def _suits(client: Any) -> bool:
    """Not through a proxy, and not for a store that knows no checksums at the end of a body."""
    utils = importlib.import_module("botocore.utils")
    checksums = getattr(client.meta.config, "request_checksum_calculation", "when_supported")
    return checksums != "when_required" and not utils.get_environ_proxies(client.meta.endpoint_url)


def name_of(error: BaseException) -> str:
    """The CRT's name of an error of its own; empty: it is another's."""
    if type(error).__name__ == "AwsCrtError":
        return str(getattr(error, "name", ""))
    words = str(error)
    at = words.find("(AWS_")  # what it raises before a request has begun
    return words[at + 1 :].partition(")")[0] if at >= 0 and isinstance(error, RuntimeError) else ""
