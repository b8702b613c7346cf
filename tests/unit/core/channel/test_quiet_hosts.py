"""Which hosts print nothing: when all do, they are asked to look at their ranks; their answers come back together."""

from __future__ import annotations

from typing import Any

import pytest

from musterpoint.base.position import Position
from musterpoint.core.channel.peers import AllLooked, LookAsked, Stalled
from musterpoint.core.channel.topics.quiet_hosts import QuietDecision, WhoIsQuiet

ONE, TWO = Position(0, "collective", "barrier", "train.py:3"), Position(1, "place", "is in f at train.py:7")


def play(*steps: tuple[Any, ...]) -> list[QuietDecision]:
    """Each step is a method's name and its arguments."""
    hosts = WhoIsQuiet(["a", "b"])
    decisions: list[QuietDecision] = []
    for name, *arguments in steps:
        decisions += getattr(hosts, name)(*arguments)
    return decisions


ASKED = ("quiet", "a", True), ("quiet", "b", True)


@pytest.mark.parametrize(
    ("steps", "decisions"),
    [
        ([("quiet", "a", True)], []),
        (ASKED, [LookAsked()]),
        ([("quiet", "a", True), ("quiet", "a", False), ("quiet", "b", True)], []),
        ([("quiet", "c", True), ("quiet", "a", True)], []),  # c is no host of the group
        ([*ASKED, ("looked", "a", (ONE,)), ("looked", "b", (TWO,))], [LookAsked(), AllLooked((ONE, TWO))]),
        ([*ASKED, ("looked", "a", (ONE,)), ("looked", "b", None)], [LookAsked(), AllLooked(None)]),
        ([*ASKED, ("looked", "a", (ONE,)), ("left", "b")], [LookAsked(), AllLooked((ONE,))]),
        ([("quiet", "a", True), ("left", "b"), ("looked", "a", (ONE,))], [LookAsked(), AllLooked((ONE,))]),
        ([("looked", "a", (ONE,)), *ASKED], [LookAsked()]),  # an answer to no question
        ([("left", "a"), ("left", "b")], []),
        ([*ASKED, ("left", "a"), ("left", "b")], [LookAsked()]),
        # a second look needs a new silence of all
        ([*ASKED, ("looked", "a", ()), ("looked", "b", ()), ("quiet", "a", True)], [LookAsked(), AllLooked(())]),
    ],
)  # fmt: skip
def test_histories(steps: list[Any], decisions: list[QuietDecision]) -> None:
    assert play(*steps) == decisions


def test_the_leader_gets_the_positions_of_all_hosts_and_tells_all_what_it_found(start: Any) -> None:
    hosts = start(1, 3), start(2, 3), start(3, 3)
    for host in hosts:
        host.gathered()
    for host in hosts:
        host.say("quiet", True)
    for rank, host in enumerate(hosts):
        host.event(LookAsked)
        host.say("looked", (ONE._replace(rank=rank, moving=rank == 1),))
    found = hosts[0].event(AllLooked).positions
    assert sorted(found) == [ONE._replace(rank=0), ONE._replace(rank=1, moving=True), ONE._replace(rank=2)]
    hosts[0].say("stalled", "all wait")
    assert [host.event(Stalled).sentence for host in hosts] == ["all wait"] * 3
    assert not hosts[1].has(AllLooked)


def test_a_host_that_is_done_is_not_waited_for(start: Any) -> None:
    leader, other = start(1, 2), start(2, 2)
    leader.gathered(), other.gathered()
    leader.say("quiet", True)
    other.say("done", 0)
    leader.event(LookAsked)
    leader.say("looked", (ONE,))
    assert leader.event(AllLooked).positions == (ONE,)


@pytest.mark.parametrize(
    "message",
    [("quiet", {"on": 1}), ("looked", {}), ("looked", {"positions": [[0, "place"]]}), ("looked", {"positions": 1})],
)  # fmt: skip
def test_a_wrong_message_costs_the_connection_and_no_more(start: Any, message: Any) -> None:
    from musterpoint.core.channel import wire

    leader, other = start(1, 2), start(2, 2)
    leader.gathered(), other.gathered()
    kind, fields = message
    other.ask(lambda peers: peers._post(wire.pack(kind, **fields)))
    leader.wait(lambda: "connection-ended" in leader.moments)
    other.say("done", 0)
