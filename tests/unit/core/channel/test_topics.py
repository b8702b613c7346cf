"""All topics of the table: their messages come back as they were, and anything else is refused."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from musterpoint.core.channel import codec, wire
from musterpoint.core.channel.topic_table import FROM_LEADER, FROM_WORKERS, TOPICS

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
