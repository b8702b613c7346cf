"""Which hosts print nothing: when all do, they are asked to look at their ranks; their answers come back together."""

from __future__ import annotations

import copy
from typing import Any, Iterator

import pytest

from musterpoint.base.position import Position
from musterpoint.core.channel.peers import AllLooked, LookAsked, Stalled
from musterpoint.core.channel.topic import World
from musterpoint.core.channel.topics.quiet_hosts import LeadersQuietHosts, Looked, Quiet, QuietDecision, WhoIsQuiet

from ...meeting import gathered
from .sides import FakeSide

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
        # a host that is quiet again before the other has looked doesn't say so twice
        ([*ASKED, ("looked", "a", ()), ("quiet", "a", True), ("looked", "b", ()), ("quiet", "b", True)],
         [LookAsked(), AllLooked(()), LookAsked()]),
    ],
)  # fmt: skip
def test_histories(steps: list[Any], decisions: list[QuietDecision]) -> None:
    assert play(*steps) == decisions


class Played:
    """The leader and its hosts, as a stall watch plays them: what each has said of its ranks, whether it looks at them,
    and the messages that are on their way, those of one host in their order.
    """

    def __init__(self) -> None:
        self.leader = WhoIsQuiet(["a", "b"])
        self.quiet = {"a": False, "b": False}
        self.looks = {"a": False, "b": False}
        self.up: dict[str, tuple[tuple[str, Any], ...]] = {"a": (), "b": ()}
        self.asked = {"a": 0, "b": 0}

    def key(self) -> str:
        return repr([self.quiet, self.looks, self.up, self.asked, self.awaited(), sorted(self.said_quiet())])

    def awaited(self) -> list[str]:
        return sorted(self.leader.awaited())

    def said_quiet(self) -> set[str]:
        return self.leader._quiet

    def next(self) -> Iterator[Played]:
        """What may happen next, each as a state of its own."""
        for host in self.quiet:
            for step in (self.turn, self.hear, self.look, self.deliver):
                after = copy.deepcopy(self)
                if getattr(after, step.__name__)(host):
                    yield after

    def turn(self, host: str) -> bool:
        """Its ranks fall silent, or print again."""
        self.quiet[host] = not self.quiet[host]
        self.up[host] += (("quiet", self.quiet[host]),)
        return len(self.up[host]) <= 3

    def hear(self, host: str) -> bool:
        """It is asked to look at its ranks."""
        if not self.asked[host] or self.looks[host]:
            return False
        self.asked[host] -= 1
        self.looks[host] = True
        return True

    def look(self, host: str) -> bool:
        """It has looked: its silence begins anew."""
        if not self.looks[host]:
            return False
        self.looks[host] = self.quiet[host] = False
        self.up[host] += (("looked", None),)
        return len(self.up[host]) <= 3

    def deliver(self, host: str) -> bool:
        """The leader gets the next message of it."""
        if not self.up[host]:
            return False
        (kind, word), *later = self.up[host]
        self.up[host] = tuple(later)
        for decision in getattr(self.leader, kind)(host, word):
            if isinstance(decision, LookAsked):
                self.asked = {each: number + 1 for each, number in self.asked.items()}
        return True


def test_whatever_the_order_the_leader_knows_who_is_quiet_once_nothing_is_on_its_way() -> None:
    """All histories of two hosts with up to three messages of each on their way: else nobody would look again."""
    waiting, seen = [Played()], {Played().key()}
    while waiting:
        state = waiting.pop()
        if not any(state.up.values()) and not any(state.asked.values()) and not any(state.looks.values()):
            assert state.awaited() == []
            assert state.said_quiet() == {host for host, on in state.quiet.items() if on}
            assert state.said_quiet() != {"a", "b"}, "all are quiet, and nobody is asked to look"
        for after in state.next():
            if after.key() not in seen:
                seen.add(after.key())
                waiting.append(after)
    assert len(seen) > 1000


def test_the_leader_gets_the_positions_of_all_hosts_and_tells_all_what_it_found(start: Any) -> None:
    hosts = gathered(start, 3)
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
    leader, other = gathered(start, 2)
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

    leader, other = gathered(start, 2)
    kind, fields = message
    other.ask(lambda peers: peers._post(wire.pack(kind, **fields)))
    leader.wait(lambda: "connection-ended" in leader.moments)
    other.say("done", 0)


class Worlds(FakeSide):
    """A leader of a trainer on two hosts, a second one on its own, a service, and a program beside the trainer."""

    @property
    def worlds(self) -> tuple[World, ...]:
        first = frozenset("ab")
        return (
            World("trainer", first),
            World("other", frozenset("c")),
            World("policy", frozenset("d"), False),
            World("logger", first, beside="trainer"),
        )


def test_each_world_is_looked_at_by_itself_when_all_its_hosts_are_quiet() -> None:
    side = Worlds("a", ("b", "c", "d"))
    half = LeadersQuietHosts(side)
    half.quiet(True)
    assert not side.sent and not side.events
    half.hear("c", Quiet(True))
    assert side.sent == [("c", LookAsked())] and not side.events and half.awaits() == {"c"}
    half.hear("b", Quiet(True))
    assert side.sent[1:] == [("b", LookAsked())] and side.events == [LookAsked()] and half.awaits() == {"a", "b", "c"}
    half.hear("c", Looked((TWO,)))
    half.looked((ONE,))
    half.hear("b", Looked(()))
    assert side.events[1:] == [AllLooked((TWO,), "other"), AllLooked((ONE,), "trainer")]


def test_a_service_may_be_quiet_for_ever() -> None:
    side = Worlds("a", ("b", "c", "d"))
    half = LeadersQuietHosts(side)
    half.hear("d", Quiet(True))
    half.hear("d", Looked(()))
    assert not side.sent and not side.events and not half.awaits()


def test_a_host_that_has_ended_leaves_its_own_world_alone() -> None:
    side = Worlds("a", ("b", "c", "d"))
    half = LeadersQuietHosts(side)
    half.quiet(True)
    for host in "cd":
        half.left(host)
    assert not side.events
    half.left("b")
    assert side.events == [LookAsked()] and {host for host, _ in side.sent} <= {"b"}
