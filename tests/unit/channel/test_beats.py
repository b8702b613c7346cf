from __future__ import annotations

from typing import Any

from musterpoint.channel.host_state import SHARES, Beats


def test_everybody_gets_one_beat_in_a_round() -> None:
    members: list[Any] = [object() for _ in range(12)]
    beats = Beats(members[:11])
    beats.add(members[11])
    shares = [beats.next() for _ in range(SHARES)]
    assert {id(member) for share in shares for member in share} == {id(member) for member in members}
    assert sum(map(len, shares)) == 12
    assert max(map(len, shares)) - min(map(len, shares)) <= 1
    beats.remove(members[0])
    assert members[0] not in [member for _ in range(SHARES) for member in beats.next()]
