"""The lengths of time fit each other: which must be shorter than which, or healthy jobs would be ended."""

from __future__ import annotations

from musterpoint.channel.timeouts import Timeouts
from musterpoint.settings import Settings
from musterpoint.supervise import policy

LIMITS = Timeouts()


def test_one_lost_beat_is_no_silence() -> None:
    assert LIMITS.beat * 2 < LIMITS.silence < Settings().silence_timeout


def test_a_closed_connection_is_given_several_tries() -> None:
    assert LIMITS.retry <= LIMITS.retry_most
    assert LIMITS.connect + LIMITS.retry_most < LIMITS.cut


def test_a_lost_cause_is_told_within_the_promised_15_seconds() -> None:
    assert LIMITS.cut + LIMITS.hold < 15


def test_the_last_resort_comes_after_everything_else() -> None:
    assert LIMITS.cut + LIMITS.hold + LIMITS.connect < policy.ROOT_CAUSE_SECONDS
    assert LIMITS.silence + LIMITS.hold < policy.ROOT_CAUSE_SECONDS
