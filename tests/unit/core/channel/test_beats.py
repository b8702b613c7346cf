"""Beats, clocks and lengths of time of a connection."""

from __future__ import annotations

from typing import Any

import pytest

from musterpoint.base.loop import Loop
from musterpoint.base.settings import Settings
from musterpoint.core.channel import wire
from musterpoint.core.channel.beats import ROUNDS, Beats, Sweeper
from musterpoint.core.channel.clocks import ClockDifference, microseconds
from musterpoint.core.channel.connection_log import ConnectionLog
from musterpoint.core.channel.link import Context
from musterpoint.core.channel.timeouts import Timeouts
from musterpoint.core.supervise import policy


def test_everybody_gets_one_beat_in_a_round() -> None:
    members: list[Any] = [object() for _ in range(12)]
    beats = Beats(members[:11])
    beats.add(members[11])
    shares = [beats.next() for _ in range(ROUNDS)]
    assert {id(member) for share in shares for member in share} == {id(member) for member in members}
    assert sum(map(len, shares)) == 12
    assert max(map(len, shares)) - min(map(len, shares)) <= 1
    beats.remove(members[0])
    assert members[0] not in [member for _ in range(ROUNDS) for member in beats.next()]


def test_a_standstill_of_this_process_is_forgiven_once_and_a_late_round_is_not_taken_for_one() -> None:
    now = 0.0
    loop = Loop(lambda: now)
    forgiven: list[tuple[float, float]] = []
    sweeps: list[float] = []
    context = Context(loop, Timeouts(beat=5.0), ConnectionLog(print, lambda *a, **k: None))
    sweeper = Sweeper(context, lambda seconds, at: forgiven.append((seconds, at)), sweeps.append)
    for moment in (0.5, 1.0, 2.0, 7.9):
        now = moment
        loop.turn(0)
    assert (sweeps, forgiven) == ([1.0, 2.0, 7.9], [])
    now = 68.9
    assert sweeper.now() == sweeper.now() == 68.9
    assert [(round(seconds, 3), at) for seconds, at in forgiven] == [(60.0, 68.9)]
    loop.turn(0)
    sweeper.stop()
    now = 100.0
    loop.turn(0)
    assert (sweeps[3:], len(forgiven)) == ([68.9], 1)
    loop.close()


TIMEOUTS = Timeouts()


def test_each_is_longer_than_what_it_waits_for() -> None:
    assert TIMEOUTS.beat * 2 < TIMEOUTS.silence < Settings().silence_timeout
    assert TIMEOUTS.retry <= TIMEOUTS.retry_most
    assert TIMEOUTS.connect + TIMEOUTS.retry_most < TIMEOUTS.cut
    assert TIMEOUTS.cut + TIMEOUTS.hold < 15, "the promise of a lost host's failure"
    assert TIMEOUTS.cut + TIMEOUTS.hold + TIMEOUTS.connect < policy.ROOT_CAUSE_SECONDS
    assert TIMEOUTS.silence + TIMEOUTS.hold < policy.ROOT_CAUSE_SECONDS


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
