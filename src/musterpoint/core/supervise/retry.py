"""Whether a job that failed may be tried again: the one place that decides it. It does no I/O.

``outcome.json`` says it (``retryable``), restarts on the same hosts follow it, and the log gives its reason.
"""

from __future__ import annotations

from typing import Literal

from musterpoint.base import exit_codes
from musterpoint.base.failure import Failure

RestartOn = Literal["infra", "user"]
"""``infra``: after failures that another attempt may not see; ``user``: also after the program's own errors."""
SIGNALS = (6, 7, 9, 11, 15)
"""SIGABRT (NCCL's watchdog ends a rank so), SIGBUS, SIGKILL, SIGSEGV and SIGTERM: ends of a process that another
attempt may not see. An illegal instruction or a division by zero comes again."""
_BEFORE_THE_RANKS = (exit_codes.ROLLCALL, exit_codes.FETCH, exit_codes.CHECK)
"""What was missing then (a host, a download) may be there next time, if it wasn't the job's own mistake."""


def why_not_again(failure: Failure, on: RestartOn = "infra") -> str:
    """Why the job isn't to be tried again after ``failure``; empty: it may be."""
    if failure.cause == "host":
        return ""
    if failure.kind == "oom" and on == "infra":
        return "it would need as much memory again (--restart-on user tries it)"
    if failure.cause == "muster":
        return "" if _may_pass(failure) else "the same would happen again"
    if failure.cause != "user":
        return f"it is the {failure.cause}'s doing"
    if on == "user" or failure.kind in ("infra", "peer") or failure.signal in SIGNALS:
        return ""
    return "it is the program's own error (--restart-on user starts it again after those, too)"


def _may_pass(failure: Failure) -> bool:
    """Whether what musterpoint itself reports may be gone at the next attempt."""
    if failure.code == exit_codes.STALLED or failure.kind == "peer":
        return True
    if failure.code == exit_codes.LAUNCHER:  # a launcher that was killed, or a server beside it
        return failure.signal in SIGNALS
    return failure.code in _BEFORE_THE_RANKS and failure.kind == "infra"


def failed_before_its_ranks(failure: Failure) -> bool:
    """Whether no rank had been started, so that there is nothing that these hosts could start again."""
    return failure.cause == "muster" and failure.code in _BEFORE_THE_RANKS
