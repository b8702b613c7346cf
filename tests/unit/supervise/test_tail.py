"""The ring keeps exactly the last bytes."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from musterpoint.supervise.tail import Tail


@given(st.lists(st.binary(max_size=70), max_size=30))
def test_it_keeps_the_last_bytes(parts: list[bytes]) -> None:
    tail = Tail(64)
    for part in parts:
        tail.feed(memoryview(part))
    assert tail.text() == b"".join(parts)[-64:]
