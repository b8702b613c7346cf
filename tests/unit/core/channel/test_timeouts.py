"""The lengths of time fit each other: which must be shorter than which, or healthy jobs would be ended."""

from __future__ import annotations

from musterpoint.base.settings import Settings
from musterpoint.core.channel.timeouts import Timeouts
from musterpoint.core.supervise import policy

TIMEOUTS = Timeouts()


def test_each_is_longer_than_what_it_waits_for() -> None:
    assert TIMEOUTS.beat * 2 < TIMEOUTS.silence < Settings().silence_timeout
    assert TIMEOUTS.retry <= TIMEOUTS.retry_most
    assert TIMEOUTS.connect + TIMEOUTS.retry_most < TIMEOUTS.cut
    assert TIMEOUTS.cut + TIMEOUTS.hold < 15, "the promise of a lost host's failure"
    assert TIMEOUTS.cut + TIMEOUTS.hold + TIMEOUTS.connect < policy.ROOT_CAUSE_SECONDS
    assert TIMEOUTS.silence + TIMEOUTS.hold < policy.ROOT_CAUSE_SECONDS
