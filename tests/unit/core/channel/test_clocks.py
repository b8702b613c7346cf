"""What beats tell of another host's clock."""

from __future__ import annotations

import pytest

from musterpoint.core.channel import wire
from musterpoint.core.channel.clocks import ClockDifference, microseconds


def answered(clock: ClockDifference, asked: float, there: float, came: float) -> None:
    clock.compare(wire.Beat(0, microseconds(asked), microseconds(there)), came)


def test_the_closest_comparison_counts() -> None:
    clock = ClockDifference()
    assert not clock.is_known
    assert clock.age(50.0, 100.0) == 0.0, "nothing is known"
    answered(clock, 100.0, 160.5, 101.0)
    assert (clock.ahead, clock.uncertainty) == (60.0, 0.5)
    answered(clock, 105.0, 165.25, 105.1)
    assert clock.ahead == pytest.approx(60.2)
    answered(clock, 110.0, 199.0, 113.0)
    assert clock.ahead == pytest.approx(60.2)
    assert clock.age(168.2, 110.0) == pytest.approx(2.0)
    assert clock.age(0.0, 110.0) == 0.0, "a failure without a time"
    assert clock.age(999.0, 110.0) == 0.0, "nothing happens later than it is told"


def test_an_old_comparison_gives_way() -> None:
    clock = ClockDifference()
    answered(clock, 100.0, 100.0, 100.0)
    answered(clock, 130.0, 135.0, 130.2)
    assert clock.ahead == 0.0
    answered(clock, 165.0, 170.1, 165.2)
    assert clock.ahead == pytest.approx(5.0)


@pytest.mark.parametrize(("asked", "came"), [(0.0, 100.0), (101.0, 100.0), (100.0, 900.0)])
def test_what_is_no_answer_tells_nothing(asked: float, came: float) -> None:
    """One that wasn't asked for, one from before it was asked, and one of a clock that was set meanwhile."""
    clock = ClockDifference()
    answered(clock, asked, 5.0, came)
    assert not clock.is_known
