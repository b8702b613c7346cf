"""What outcome.json says besides the code."""

from __future__ import annotations

import pytest

from musterpoint.failure import Failure, Secondary
from musterpoint.report.files import OutcomeRecord
from musterpoint.supervise.outcome import Outcome

USER = Failure("algo-2", 7, "user", "user", "ValueError: x", 3, 1, None, 1.0)

CASES = [
    (Outcome(0, None, "", ()), "", "done", False, ""),
    (Outcome(143, None, "algo-1", ()), "platform", "stopped", True, "stopped by the platform on algo-1"),
    (Outcome(143, None, "algo-1", (), spoilt=USER), "platform", "stopped", True,
     "stopped by the platform on algo-1; while it was stopping:\nValueError: x"),
    (Outcome(7, USER, "", ()), "user", "user", False, "ValueError: x"),
    (Outcome(7, USER, "", (), Secondary(2)), "user", "user", False, "ValueError: x\n2 other ranks failed the same way"),
    (Outcome(137, USER._replace(kind="oom"), "", ()), "user", "oom", False, "ValueError: x"),
    (Outcome(1, USER._replace(kind="peer"), "", ()), "user", "peer", True, "ValueError: x"),
    (Outcome(76, USER._replace(kind="infra", cause="host"), "", ()), "host", "infra", True, "ValueError: x"),
    (Outcome(70, USER._replace(code=70, kind="infra", cause="muster"), "", ()), "muster", "infra", False, USER.reason),
    (Outcome(3, None, "", ()), "muster", "infra", True, "muster: ended with exit code 3 for a reason nobody reported"),
]  # fmt: skip


@pytest.mark.parametrize(("outcome", "cause", "kind", "retryable", "reason"), CASES)
def test_verdicts(outcome: Outcome, cause: str, kind: str, retryable: bool, reason: str) -> None:
    verdict = OutcomeRecord.from_outcome(outcome)
    assert (verdict.code, verdict.cause, verdict.kind) == (outcome.code, cause, kind)
    assert (verdict.retryable, verdict.reason, verdict.attempt) == (retryable, reason, 1)


def test_the_keys_of_outcome_json() -> None:
    value = OutcomeRecord.from_outcome(Outcome(7, USER, "", ()), attempt=2).to_json()
    assert value == {
        "code": 7, "cause": "user", "class": "user", "retryable": False, "host": "algo-2", "rank": 3, "signal": None,
        "attempt": 2, "reason": "ValueError: x",
    }  # fmt: skip
