"""The lengths of time fit each other: which must be shorter than which, or healthy jobs would be ended."""

from __future__ import annotations

from musterpoint.base.settings import Settings
from musterpoint.core.channel.timeouts import Timeouts
from musterpoint.core.supervise import policy

TIMEOUTS = Timeouts()


def test_one_lost_beat_is_no_silence() -> None:
    assert TIMEOUTS.beat * 2 < TIMEOUTS.silence < Settings().silence_timeout


def test_a_closed_connection_is_given_several_tries() -> None:
    assert TIMEOUTS.retry <= TIMEOUTS.retry_most
    assert TIMEOUTS.connect + TIMEOUTS.retry_most < TIMEOUTS.cut


def test_a_lost_cause_is_told_within_the_promised_15_seconds() -> None:
    assert TIMEOUTS.cut + TIMEOUTS.hold < 15


def test_the_last_resort_comes_after_everything_else() -> None:
    assert TIMEOUTS.cut + TIMEOUTS.hold + TIMEOUTS.connect < policy.ROOT_CAUSE_SECONDS
    assert TIMEOUTS.silence + TIMEOUTS.hold < policy.ROOT_CAUSE_SECONDS
