"""Every word of the vocabulary has somebody who understands it."""

from __future__ import annotations

from typing import get_args

from musterpoint import peers
from musterpoint.supervise import events, policy, supervisor


def test_the_policy_hears_every_event() -> None:
    assert set(policy._HANDLERS) == {*get_args(events.LocalEvent), *get_args(peers.PeerEvent)}


def test_the_supervisor_can_do_everything_it_is_told() -> None:
    assert set(supervisor._ACTS) == set(get_args(events.Action))
