from __future__ import annotations

import json
from typing import Any

import pytest

from musterpoint.rollcall.roster import Roster, Seat

SEATS = (
    Seat("algo-1", "10.0.0.1", 4),
    Seat("algo-2", "10.0.0.2", 0, grouped=False),
    Seat("algo-10", "10.0.0.3", 2),
)
ROSTER = Roster("job", "session", SEATS, "10.0.0.1", 7777, "algo-10")


def test_ranks_follow_the_group() -> None:
    assert [seat.name for seat in ROSTER.group] == ["algo-1", "algo-10"]
    assert (ROSTER.world_size, ROSTER.node_rank, ROSTER.first_rank, ROSTER.seat) == (6, 1, 4, SEATS[2])
    outside = ROSTER._replace(me="algo-2")
    assert (outside.node_rank, outside.first_rank) == (-1, 0)


def test_it_survives_the_wire() -> None:
    assert Roster.from_wire(json.loads(json.dumps(ROSTER.to_wire())), "algo-10") == ROSTER


@pytest.mark.parametrize("change", [{"seats": 3}, {"seats": [[]]}, {"master_port": None}, {"seats": []}])
def test_what_is_no_roster(change: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="roster"):
        Roster.from_wire({**ROSTER.to_wire(), **change}, "algo-10")
