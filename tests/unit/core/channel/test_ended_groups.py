"""The end of the programs whose end is the job's: told once, when the last of their hosts has ended or is gone."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from musterpoint.core.channel.bounds import WireError
from musterpoint.core.channel.peers import GroupEnded, WorldEnded
from musterpoint.core.channel.topic import World
from musterpoint.core.channel.topics.ended_groups import DISTRIBUTION, LeadersEndedGroups, WorkersEndedGroups

from .sides import FakeSide

ENDED = GroupEnded(DISTRIBUTION)


class Side(FakeSide):
    """A leader of a job with ``given`` worlds."""

    def __init__(self, *given: World) -> None:
        super().__init__("a", ("b", "c", "d"))
        self.given = given

    @property
    def worlds(self) -> tuple[World, ...]:
        return self.given


@given(st.permutations("abcd"), st.lists(st.tuples(st.sets(st.sampled_from("abcd"), min_size=1), st.booleans())))
def test_it_is_told_once_when_the_last_host_of_the_jobs_roles_has_ended(
    order: list[str], worlds: list[tuple[set[str], bool]]
) -> None:
    """Whichever worlds those hosts have, and whoever else runs."""
    given = [World(str(number), frozenset(hosts), ends) for number, (hosts, ends) in enumerate(worlds)]
    first = World("first", frozenset("a"))
    side = Side(first, *given)
    half = LeadersEndedGroups(side)
    ending = set[str]().union(*(world.hosts for world in (first, *given) if world.ends))
    for place, host in enumerate(order, 1):
        half.left(host)
        half.left(host)
        through = ending <= {*order[:place]}
        assert half.all_ended == through
        of_worlds = [event for event in side.events if isinstance(event, WorldEnded)]
        assert [event for event in side.events if event not in of_worlds] == ([ENDED] if through else [])
        gone = [world.name for world in (first, *given) if world.hosts <= {*order[:place]}]
        assert sorted(event.world for event in of_worlds) == sorted(gone)
        assert [said for _, said in side.sent] == side.events


def test_who_is_gone_before_an_attempt_is_not_waited_for() -> None:
    side = Side(World("trainer", frozenset("abc")), World("policy", frozenset("d"), False))
    side.away = frozenset("c")
    half = LeadersEndedGroups(side)
    half.left("a")
    half.left("b")
    assert half.all_ended
    half.begin()
    assert not half.all_ended


def test_a_host_without_a_leader_takes_the_jobs_roles_for_ended() -> None:
    """Nobody would tell it of their end."""
    side = FakeSide("b", ("a",))
    half = WorkersEndedGroups(side)
    half.alone()
    assert side.events == [ENDED]


def test_a_worker_hears_it_once() -> None:
    side = FakeSide("b", ("a",))
    half = WorkersEndedGroups(side)
    half.hear(ENDED, 20)
    half.alone()
    assert side.events == [ENDED]
    with pytest.raises(WireError, match="twice"):
        half.hear(ENDED, 20)
    half.begin()
    half.hear(ENDED, 20)
    assert side.events == [ENDED, ENDED]
