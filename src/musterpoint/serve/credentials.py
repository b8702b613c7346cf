"""The keys that calls may be signed with.

The server's own pair is made at its start, each job gets one of its own while it runs, and moto has those that its IAM
and STS have given out: a key that is deleted or inactive there is known to nobody any more.
"""

from __future__ import annotations

import secrets
from typing import NamedTuple

from botocore.auth import S3SigV4QueryAuth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials as Keys
from moto.core.utils import utcnow
from moto.iam.models import iam_backends
from moto.sts.models import sts_backends

from musterpoint.serve.settings import ACCOUNT

_PARTITION = "aws"


class Pair(NamedTuple):
    """``controls``: it may ask for faults, waits and a reset, too."""

    access_key: str
    secret_key: str
    controls: bool = False

    def presigned(self, url: str, region: str, seconds: int) -> str:
        """The URL by which who has no keys may put an object there, for some time."""
        request = AWSRequest("PUT", url)
        S3SigV4QueryAuth(Keys(self.access_key, self.secret_key), "s3", region, expires=seconds).add_auth(request)
        return str(request.url)


def new_pair(controls: bool = False) -> Pair:
    return Pair("MUSTER" + secrets.token_hex(7).upper(), secrets.token_hex(20), controls)


class Credentials:
    """All pairs; ``own``: the server's."""

    def __init__(self, own: Pair) -> None:
        self._known = {own.access_key: own}

    def of_job(self) -> Pair:
        """A new pair, until :meth:`revoke`."""
        made = new_pair()
        self._known[made.access_key] = made
        return made

    def revoke(self, pair: Pair) -> None:
        self._known.pop(pair.access_key, None)

    def find(self, access_key: str) -> Pair | None:
        """None: nobody has this key."""
        return self._known.get(access_key) or _issued(access_key)


def _issued(access_key: str) -> Pair | None:
    key = iam_backends[ACCOUNT][_PARTITION].access_keys.get(access_key)
    if key is not None and key.status == "Active":
        return Pair(access_key, str(key.secret_access_key))
    for role in sts_backends[ACCOUNT][_PARTITION].assumed_roles:
        if role.access_key_id == access_key and role.expiration > utcnow():
            return Pair(access_key, str(role.secret_access_key))
    return None
