"""After which failures a job is started again, and when no more."""

from __future__ import annotations

import itertools
from typing import Any, get_args

import pytest

from musterpoint.base.failure import Cause, Failure, Kind
from musterpoint.core.channel.topics.attempts import Ready
from musterpoint.core.report.files import OutcomeRecord
from musterpoint.core.supervise.restart_rules import End, EndedAttempt, Restart, RestartRules, Wait, decide_restart
from musterpoint.core.supervise.retry import failed_before_its_ranks, why_not_again
from musterpoint.core.supervise.state import Outcome

from ..failures import ERROR, KILLED, ours

MADE, NONE, UNKNOWN = Ready("made"), Ready("none"), Ready()
BOTH = {"algo-1": UNKNOWN, "algo-2": UNKNOWN}


CAUSES: tuple[Cause, ...] = ("user", "muster", "host")
KINDS: tuple[Kind, ...] = get_args(Kind)
CODES = (1, 64, 69, 70, 71, 72, 74, 75, 76, 78, 134, 137, 139)
EVERY = [
    Failure("algo-2", code, cause, kind, "it failed", signal=signo)
    for cause, kind, code, signo in itertools.product(CAUSES, KINDS, CODES, (None, 4, 6, 7, 8, 9, 11, 15))
]


@pytest.mark.parametrize("cause", CAUSES)
def test_a_job_that_is_started_again_is_retryable_and_the_log_says_why_another_is_not(cause: str) -> None:
    """For every kind of failure: the rule of restarts, ``outcome.json`` and the sentence in the log."""
    for failure in (each for each in EVERY if each.cause == cause):
        decision = decide_restart(RestartRules(1), EndedAttempt(0, 60.0, None, failure), BOTH)
        record = OutcomeRecord.from_outcome(Outcome(failure.code, failure))
        not_again = why_not_again(failure)
        assert record.retryable == (not not_again), failure
        if failed_before_its_ranks(failure) and not not_again:
            assert decision == End(
                "its ranks had not been started, so there is nothing to start again on the same hosts"
            )
        else:
            assert decision == (End(not_again) if not_again else Restart()), failure


NOTHING = {"algo-1": NONE, "algo-2": UNKNOWN}
FIRST = EndedAttempt(0, 60.0, None, KILLED)
SECOND = EndedAttempt(1, 60.0, 60.0, KILLED)
STUCK = {"algo-1": UNKNOWN, "algo-2": Ready(left=2)}


@pytest.mark.parametrize(
    ("ended", "hosts", "more", "expected"),
    [
        (FIRST, BOTH, {}, Restart()),
        (SECOND, BOTH, {}, Restart()),
        (SECOND._replace(number=2), BOTH, {}, End("--max-restarts 2 allows no more")),
        (FIRST._replace(failure=ours(72)), BOTH, {}, End("the same would happen again")),
        # without checkpoints nothing is known of progress; the first attempt has none before it
        (FIRST, NOTHING, {}, Restart()),
        (SECOND, NOTHING, {}, "it got no further than the attempt before: 60 s after 60 s, and nothing new"),
        (SECOND._replace(seconds=66.1), NOTHING, {}, Restart()),
        (SECOND, {"algo-1": NONE, "algo-2": MADE}, {}, Restart()),
        (FIRST, STUCK, {}, "2 processes of it on algo-2 can't be killed"),
        # hosts that are gone
        (FIRST, {"algo-1": UNKNOWN}, {"away": {"algo-2"}}, Wait(("algo-2",))),
        (FIRST, {"algo-1": UNKNOWN}, {"left": {"algo-2"}}, End("algo-2 has left the job")),
        (FIRST, {}, {"left": {"algo-2", "algo-3", "algo-4"}}, End("algo-2 and 2 more have left the job")),
        # a stop ends what would go on, and nothing else
        (FIRST._replace(stopped=True), BOTH, {}, End("the job was told to stop", stopped=True)),
        (FIRST._replace(stopped=True), {}, {"away": {"algo-2"}}, End("the job was told to stop", stopped=True)),
        (FIRST._replace(stopped=True, failure=ERROR), BOTH, {}, "it is the program's own error"),
        (SECOND._replace(stopped=True, number=2), BOTH, {}, End("--max-restarts 2 allows no more")),
    ],
)
def test_what_follows_an_attempt(ended: EndedAttempt, hosts: Any, more: Any, expected: Any) -> None:
    decision = decide_restart(RestartRules(2), ended, hosts, **more)
    if isinstance(expected, str):
        assert isinstance(decision, End)
        assert decision.why.startswith(expected)
        assert not decision.stopped
    else:
        assert decision == expected
