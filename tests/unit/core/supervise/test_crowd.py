"""Jobs of some hundred simulated hosts from the roll call to the end, with loss, slow hosts and slow names."""

from __future__ import annotations

import pytest

from .simulated_crowd import Conditions, End, play_crowd

ROUGH = Conditions(200, loss=0.02, slow=0.05, slow_names=0.05, looked_up=True, spread=1.0)
FULL = Conditions(600, loss=0.0, slow=0.0, slow_names=0.0, backlog=10)
"""All call in the same moment, and the leader's port takes few at a time: 100,000 hosts and 4,096, but smaller."""
SOON = 5.0
"""Seconds in which 200 hosts have met, and all know of what ends the job, where nobody is lost: some SYNs are lost."""


@pytest.mark.parametrize("end", ["fails", "stops", "restarts", "lost"])
def test_a_rough_network_delays_nobody_for_long(end: End) -> None:
    played = play_crowd(ROUGH, end=end)
    assert not played.broken
    assert 0 < played.roll_call < SOON + ROUGH.spread
    assert 0 < played.told < (SOON if end != "lost" else SOON + 10.0)  # a closed connection may come back for 10 s
    assert played.told < played.over < 60.0
    assert (played.begun > played.told) == (end == "restarts")


def test_hosts_that_find_the_port_full_call_again_at_different_times() -> None:
    """Each call at the same time, again and again, would take 60 s: ten hosts a second."""
    played = play_crowd(FULL)
    assert not played.broken
    assert played.dropped > FULL.hosts
    assert played.roll_call < SOON
