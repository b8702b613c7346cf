"""Rounds of beats, and what a standstill of this process is taken for."""

from __future__ import annotations

from typing import Any

from musterpoint.base.loop import Loop
from musterpoint.core.channel.beats import ROUNDS, Beats, Sweeper
from musterpoint.core.channel.connection_log import ConnectionLog
from musterpoint.core.channel.link import Context
from musterpoint.core.channel.timeouts import Timeouts


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
