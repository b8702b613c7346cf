"""Why a host that says hello can't be one of this job's: pure rules."""

from typing import NamedTuple

from musterpoint.printable import printable
from musterpoint.rollcall import wire
from musterpoint.rollcall.hello import Hello
from musterpoint.rollcall.roster import Offer

NO_SEAT = "no seat of this job is this caller's; the log of the job's leader may say why"
"""All that a caller hears who has not shown that it is a host of the job."""
ANOTHER_PROTOCOL = f"this leader speaks protocol {wire.PROTOCOL}: install the same version of musterpoint on all hosts"
ANOTHER_SECRET = "the secret of this job is missing or another one (--secret, MUSTER_SECRET)"

_LONGEST = 200


class Objection(NamedTuple):
    """``reason`` is for a host that is certainly itself, and for the logs then. ``claim`` says the same of somebody who
    only calls itself so, in words none of which are the caller's; ``answer`` is what that caller hears.
    """

    reason: str
    claim: str
    answer: str = NO_SEAT


def objection_to(
    hello: Hello, me: str, offer: Offer, others: frozenset[str], grouped: frozenset[str], secret: bool
) -> Objection | None:
    """What the leader ``me``, who offers ``offer``, has against ``hello``.

    ``others`` are the job's hosts but for the leader, ``grouped`` those of the distribution; ``secret``: there is one.
    """
    if hello.protocol != wire.PROTOCOL:
        reason = (
            f"{hello.host} speaks protocol {hello.protocol}, {me} protocol {wire.PROTOCOL}: "
            "install the same version of musterpoint on all hosts"
        )
        return Objection(reason, "speaks another protocol: install the same version on all hosts", ANOTHER_PROTOCOL)
    if hello.host == me:
        return Objection(f"{me} is the leader itself: two hosts have this name", "is another host")
    if hello.host not in others:
        count = len(others) + 1
        return Objection(f"{hello.host} is not one of the {count} hosts of {offer.job}", "is no host of this job")
    if secret != bool(hello.nonce):
        one, other = (me, hello.host) if secret else (hello.host, me)
        reason = f"{one} has a secret and {other} has none (--secret, MUSTER_SECRET)"
        return Objection(reason, "differs in having a secret (--secret, MUSTER_SECRET)", ANOTHER_SECRET)
    if hello.offer.job != offer.job:
        theirs = printable(repr(hello.offer.job), _LONGEST)
        return Objection(f"{hello.host} belongs to job {theirs}, {me} to {offer.job!r}", "belongs to another job")
    ours, theirs = offer.launcher, printable(hello.offer.launcher, _LONGEST)
    if hello.host in grouped and ours and theirs and ours != theirs:
        reason = f"{hello.host} would start the launcher {theirs}, {me} {ours}"
        return Objection(reason, "would start another launcher")
    return None
