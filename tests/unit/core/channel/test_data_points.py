"""Hosts say what they have of data; the leader speaks about all, and a host that lies is lost."""

from __future__ import annotations

import queue
from functools import partial
from typing import Any, Callable

import pytest

from musterpoint.core.channel import wire
from musterpoint.core.channel.peers import PeerLost, Report
from musterpoint.core.channel.topics.data_points import TOPIC, DataHere, DataThere, decide

from ...meeting import PATIENCE, gathered

THERE = DataHere(0, "there", False, False, 3)
GOOD: dict[str, Any] = {"t": "datahere", **THERE._asdict()}
BAD = [
    {"t": "ask", "point": "data-0-there", "text": "no json"},
    {"t": "ask", "point": "data-0-there", "text": '{"owner": "x"}'},
    {"t": "ask", "point": "check", "text": "[" * 9000},
    {**GOOD, "owner": "x"},
    {**GOOD, "owner": 10**7},
    {**GOOD, "number": "x"},
    {**GOOD, "number": -1},
    {**GOOD, "number": 10**12},
    {**GOOD, "number": True},
    {**GOOD, "is_new": 1},
    {**GOOD, "has_failed": None},
    {**GOOD, "about": "else"},
    {**GOOD, "attempt": -1},
    {"t": "datahere", "owner": "x"},
]


def test_the_leaders_word_is_about_all_hosts_and_the_owner_is_its_own() -> None:
    said = {"a": THERE, "b": THERE._replace(number=7), "c": THERE._replace(number=None, is_new=True)}
    found = decide({host: Report(each, 0.0) for host, each in said.items()}, owner=5)
    assert found == DataThere(0, "there", False, True, 7, 3, "b", 5)


def say(host: Any, answers: queue.SimpleQueue[DataThere]) -> None:
    def consult(peers: Any) -> None:
        peers.topic(TOPIC).consult(THERE, partial(decide, owner=1), answers.put, 60.0)

    host.ask(consult)


@pytest.mark.parametrize("leader_first", [True, False])
@pytest.mark.parametrize("message", BAD, ids=lambda message: str(message)[:60])
def test_a_host_that_says_anything_else_is_lost(
    start: Callable[..., Any], message: dict[str, Any], leader_first: bool
) -> None:
    """The others agree without it, whether the leader has come to that point or not."""
    leader, liar, other = gathered(start, 3)
    answers: queue.SimpleQueue[DataThere] = queue.SimpleQueue()
    fields = {name: value for name, value in message.items() if name != "t"}
    if leader_first:
        say(leader, answers)
    liar.ask(lambda peers: peers._post(wire.pack(message["t"], **fields)))
    assert leader.event(PeerLost).host == other.event(PeerLost).host == liar.me
    if not leader_first:
        say(leader, answers)
    say(other, answers)
    for _ in range(2):
        assert answers.get(timeout=PATIENCE) == DataThere(0, "there", False, False, 3, 3, leader.me, 1)
