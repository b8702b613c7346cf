"""Which roles are ready: the leader collects it from their hosts, in any order, and counts the time of those that can
begin.
"""

from __future__ import annotations

from typing import Any, Callable

from hypothesis import given
from hypothesis import strategies as st

from musterpoint.core.channel.topic import World
from musterpoint.core.channel.topics.ready_roles import (
    LeadersReadyRoles,
    NotReady,
    PartReady,
    RoleReady,
    RoleState,
    WorkersReadyRoles,
)

from .sides import FakeSide

TRAINER = World("trainer", frozenset(("a", "b")), True, ("policy", "reward"), 60.0)
POLICY = World("policy", frozenset(("c", "d")), False, (), 60.0)
REWARD = World("reward", TRAINER.hosts, False, ("policy",), 90.0, beside="trainer")
WORLDS = TRAINER, POLICY, REWARD
PARTS = [(world.name, host) for world in WORLDS for host in sorted(world.hosts)]


class Side(FakeSide):
    """``timers`` are what is due later."""

    def __init__(self) -> None:
        super().__init__("a", ("b", "c", "d"))
        self.timers: list[tuple[float, Callable[[], None]]] = []

    @property
    def worlds(self) -> tuple[World, ...]:
        return WORLDS

    def call_later(self, seconds: float, call: Callable[[], None]) -> object:
        self.timers.append((seconds, call))
        return None

    @property
    def seconds(self) -> list[float]:
        return [seconds for seconds, _ in self.timers]


def say(half: LeadersReadyRoles, role: str, host: str) -> None:
    if host == "a":
        half.ready(role)
    else:
        half.hear(host, PartReady(role))


@given(st.permutations(PARTS), st.sets(st.sampled_from("bcd")), st.data())
def test_a_role_is_ready_once_when_all_its_hosts_are_in_any_order(parts: Any, away: set[str], data: Any) -> None:
    side = Side()
    half = LeadersReadyRoles(side)
    left = {world.name: set(world.hosts) for world in WORLDS}
    for role, host in parts:
        side.away = frozenset(data.draw(st.sets(st.sampled_from(sorted(away)))) if away else ())
        say(half, role, host)
        say(half, role, host)  # twice is once
        left[role].discard(host)
        ready = [event.role for event in side.events]
        assert sorted(ready) == sorted(name for name, hosts in left.items() if not hosts)
        assert [message for _, message in side.sent] == side.events
        assert not half.awaits() & side.away
    assert half.awaits() == set()


def test_a_host_of_another_role_says_nothing_of_this_one() -> None:
    side = Side()
    half = LeadersReadyRoles(side)
    for host in ("a", "b"):
        say(half, "policy", host)
        say(half, "unknown", host)
    assert not side.events


def test_time_counts_from_when_a_role_can_begin_and_only_where_others_wait() -> None:
    side = Side()
    half = LeadersReadyRoles(side)
    assert side.seconds == [60.0] and half.awaits() == {"c", "d"}
    half.hear("c", PartReady("policy"))
    assert side.seconds == [60.0] and half.awaits() == {"d"}
    half.hear("d", PartReady("policy"))
    assert side.seconds == [60.0, 90.0] and half.awaits() == {"a", "b"}  # nobody waits for the trainer


def test_who_is_late_is_told_with_all_roles() -> None:
    side = Side()
    half = LeadersReadyRoles(side)
    half.hear("c", PartReady("policy"))
    side.timers[0][1]()
    assert side.events == [NotReady("policy", 60.0, (
        RoleState("trainer", ("a", "b"), ("policy", "reward")),
        RoleState("policy", ("d",), ()),
        RoleState("reward", ("a", "b"), ("policy",)),
    ))]  # fmt: skip
    assert not side.sent  # only the leader gets it


def test_who_was_ready_in_time_is_not_late() -> None:
    side = Side()
    half = LeadersReadyRoles(side)
    for host in "cd":
        half.hear(host, PartReady("policy"))
    side.timers[0][1]()
    assert side.events == [RoleReady("policy")]


def test_another_attempt_begins_anew_and_the_time_of_the_last_one_is_forgotten() -> None:
    side = Side()
    half = LeadersReadyRoles(side)
    for host in "cd":
        half.hear(host, PartReady("policy"))
    half.begin()
    assert side.seconds == [60.0, 90.0, 60.0] and half.awaits() == {"c", "d"}
    for _, due in side.timers[:2]:
        due()
    assert side.events == [RoleReady("policy")]
    side.timers[2][1]()
    assert isinstance(side.events[-1], NotReady)


def test_a_worker_tells_the_leader_and_passes_on_its_word() -> None:
    side = FakeSide("b", ("a",))
    half = WorkersReadyRoles(side)
    half.ready("policy")
    assert side.sent == [("leader", PartReady("policy"))]
    half.hear(RoleReady("policy"), 20)
    assert side.events == [RoleReady("policy")]
