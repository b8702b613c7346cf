"""The verdict: what the exit code alone can't say, as ``outcome.json`` holds it."""

from __future__ import annotations

from typing import Any, NamedTuple

from musterpoint import exit_codes
from musterpoint.report.reason import fit, with_secondary
from musterpoint.supervise.outcome import Outcome

RETRYABLE = ("peer", "infra", "stopped")
"""Classes after which the same job may well succeed."""


class Verdict(NamedTuple):
    """How the job ended. ``cause`` is ``user``, ``muster``, ``platform`` or ``host``, empty when all went well.

    ``kind`` is the ``class``: ``user``, ``oom``, ``peer``, ``infra``, ``stopped`` or ``done``. ``host`` and ``rank``
    are where it began.
    """

    code: int
    cause: str
    kind: str
    retryable: bool
    host: str
    rank: int | None
    signal: int | None
    attempt: int
    reason: str

    @classmethod
    def from_outcome(cls, outcome: Outcome, attempt: int = 1) -> Verdict:
        failure = outcome.failure
        if failure is not None:
            retryable = failure.kind in RETRYABLE and failure.code != exit_codes.INTERNAL
            return cls(
                outcome.code, failure.cause, failure.kind, retryable, failure.host, failure.rank, failure.signal,
                attempt, with_secondary(failure, outcome.secondary),
            )  # fmt: skip
        if outcome.stopped_by:
            reason = f"stopped by the platform on {outcome.stopped_by}"
            if outcome.spoilt is not None:
                reason = fit([f"{reason}; while it was stopping:", outcome.spoilt.reason])
            return cls(outcome.code, "platform", "stopped", True, outcome.stopped_by, None, None, attempt, reason)
        if outcome.code:
            reason = f"muster: ended with exit code {outcome.code} for a reason nobody reported"
            return cls(outcome.code, "muster", "infra", True, "", None, None, attempt, reason)
        return cls(outcome.code, "", "done", False, "", None, None, attempt, "")

    def to_json(self) -> dict[str, Any]:
        """The object in ``outcome.json``; ``kind`` is called ``class`` there."""
        return {("class" if name == "kind" else name): value for name, value in self._asdict().items()}
