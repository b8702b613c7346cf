"""A failure of each kind."""

from __future__ import annotations

from musterpoint.base.failure import Failure, lost_host

ERROR = Failure("algo-2", 1, "user", "user", "ValueError: boom", 3, 1)
KILLED = ERROR._replace(code=137, kind="infra", signal=9)
OOM = KILLED._replace(kind="oom")
PEER = ERROR._replace(kind="peer")
ECC = ERROR._replace(kind="infra")
LOST = lost_host("algo-2", "it closed the connection")
STALLED = Failure("algo-1", 74, "muster", "infra", "muster: stalled")


def ours(code: int) -> Failure:
    return Failure("algo-1", code, "muster", "infra", "muster: it can't be")
