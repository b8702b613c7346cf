"""All topics of the table: their messages come back as they were, and anything else is refused."""

from __future__ import annotations

import hashlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from musterpoint.base.failure import Failure
from musterpoint.core.channel import codec, wire
from musterpoint.core.channel.peers import GroupEnded
from musterpoint.core.channel.topic_table import FROM_LEADER, FROM_WORKERS, TOPICS
from musterpoint.core.channel.topics.ended_groups import DISTRIBUTION, LeadersEndedGroups
from musterpoint.core.channel.topics.raised_ranks import LateRanks, LeadersRaised, RaisedAsked
from musterpoint.core.rollcall.hello import Hello
from musterpoint.core.rollcall.roster import Offer, Roster, Seat
from musterpoint.core.supervise.state import first_lines

from .sides import FakeSide

MESSAGES = [message for topic in TOPICS for message in (*topic.from_workers, *topic.from_leader)]
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)
CORE = {"failed", "stopping", "abandon", "done", "bye", "leaving", "verdict", "stop", "lost", "alldone"}


def test_every_kind_is_of_one_topic() -> None:
    kinds = [codec.kind_of(message) for message in MESSAGES]
    assert len({topic.name for topic in TOPICS}) == len(TOPICS)
    assert len(set(kinds)) == len(kinds) == len(FROM_WORKERS) + len(FROM_LEADER)
    assert not CORE & set(kinds)


@pytest.mark.parametrize("message", MESSAGES, ids=codec.kind_of)
@given(data=st.data())
def test_whatever_comes_is_a_message_within_its_bounds_or_refused(message: type[Any], data: st.DataObject) -> None:
    fields = data.draw(st.fixed_dictionaries({}, optional=dict.fromkeys(message._fields, JSON)))
    try:
        found = codec.unpack(message, fields)
    except wire.WireError as error:
        assert str(error).startswith(f"a message {codec.kind_of(message)!r} whose ")
        return
    assert codec.unpack(message, wire.unpack(codec.pack(found)[wire.HEAD :])) == found


HOSTS = ("a", "b", "c", "outside")
ATTEMPTS = st.lists(st.tuples(st.sets(st.sampled_from("bc")), st.lists(st.sampled_from(HOSTS))), min_size=1, max_size=3)


@given(ATTEMPTS)
def test_the_last_host_of_a_group_ends_it_in_every_attempt(attempts: list[tuple[set[str], list[str]]]) -> None:
    """Each attempt: the hosts that are away from its beginning, and who is done or gone then, also twice."""
    side, ended = FakeSide("a", HOSTS[1:]), GroupEnded(DISTRIBUTION)
    side.group = frozenset("abc")
    half = LeadersEndedGroups(side)
    for away, left in attempts:
        side.away, side.events, side.sent = frozenset(away), [], []
        half.begin()
        for number, host in enumerate(left, 1):
            half.left(host)
            assert side.events == [ended] * (away.union(left[:number]) >= side.group)
            assert side.sent == [("", ended)] * len(side.events)


def test_who_is_late_is_told_of_symptoms_and_the_list_is_short() -> None:
    half = LeadersRaised(side := FakeSide("a", HOSTS[1:]))
    half.ask()
    assert side.events == [RaisedAsked()] and not half.awaits()  # this side's clock has no patience
    symptom = Failure("a", 1, "user", "peer", "Timed out\nrank 0 (local rank 0) on a, exit code 1", rank=0)
    assert half.explained(symptom) == symptom
    for host in HOSTS:
        half.hear(host, LateRanks((f"rank 9 on {host} was not in the call: asleep",)))
    late = [f"rank 9 on {host} was not in the call: asleep" for host in "abc"]
    lines = ["Timed out", *late[:2], f"{late[2]}; 1 more like this", "rank 0 (local rank 0) on a, exit code 1"]
    explained = half.explained(symptom)
    assert explained.reason.splitlines() == lines and first_lines(explained) == "; ".join(lines)
    assert half.explained(symptom._replace(kind="user")) == symptom._replace(kind="user")


def test_what_hosts_say_has_a_number() -> None:
    """Where this fails, hosts of the version before don't understand it: count ``PROTOCOL`` up, and write both here."""
    forms = sorted((each.__name__, tuple(each._fields)) for each in (*MESSAGES, Hello, Offer, Roster, Seat))
    digest = hashlib.sha256(repr(forms).encode()).hexdigest()[:12]
    assert (wire.PROTOCOL, digest) == (11, "5ef6d05cfd3e")
