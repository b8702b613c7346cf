"""Every word of the vocabulary has somebody who understands it."""

from __future__ import annotations

from typing import get_args

from musterpoint.channel import peers
from musterpoint.supervise import events, policy, supervisor


def test_every_event_is_heard_once() -> None:
    everything = {*get_args(events.LocalEvent), *get_args(peers.PeerEvent)}
    assert set(policy._HANDLERS) | set(supervisor._FOR_DAEMONS) == everything
    assert not set(policy._HANDLERS) & set(supervisor._FOR_DAEMONS)


def test_the_supervisor_can_do_everything_it_is_told() -> None:
    assert set(supervisor._ACTS) == set(get_args(events.Action))
