"""Why a host that says hello can't be one of this job's: pure rules."""

from __future__ import annotations

from musterpoint.rollcall import wire
from musterpoint.rollcall.hello import Hello
from musterpoint.rollcall.roster import Offer


def objection_to(
    hello: Hello, me: str, offer: Offer, others: frozenset[str], grouped: frozenset[str], secret: bool
) -> str:
    """What the leader ``me``, who offers ``offer``, has against ``hello``; empty: nothing.

    ``others`` are the job's hosts but for the leader, ``grouped`` those of the distribution; ``secret``: there is one.
    """
    if hello.protocol != wire.PROTOCOL:
        return (
            f"{hello.host} speaks protocol {hello.protocol}, {me} protocol {wire.PROTOCOL}: "
            "install the same version of musterpoint on all hosts"
        )
    if hello.host == me:
        return f"{me} is the leader itself: two hosts have this name"
    if hello.host not in others:
        return f"{hello.host} is not one of the {len(others) + 1} hosts of {offer.job}"
    if secret != bool(hello.nonce):
        one, other = (me, hello.host) if secret else (hello.host, me)
        return f"{one} has a secret and {other} has none (--secret, MUSTER_SECRET)"
    if hello.offer.job != offer.job:
        return f"{hello.host} belongs to job {hello.offer.job!r}, {me} to {offer.job!r}"
    ours, theirs = offer.launcher, hello.offer.launcher
    if hello.host in grouped and ours and theirs and ours != theirs:
        return f"{hello.host} would start the launcher {theirs}, {me} {ours}"
    return ""
