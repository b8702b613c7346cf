"""Who is here, in rank order; on its way it stays the same, and garbage is a ValueError."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from musterpoint.core.rollcall.roster import Roster, Seat

SEATS = (
    Seat("algo-1", "10.0.0.1", 4),
    Seat("algo-2", "10.0.0.2", 0, grouped=False),
    Seat("algo-10", "10.0.0.3", 2, ports=(7777, 21000)),
)
ROSTER = Roster("job", "session", SEATS, "10.0.0.1", 7777, "algo-10")


def test_ranks_follow_the_group() -> None:
    assert [seat.name for seat in ROSTER.group] == ["algo-1", "algo-10"]
    assert (ROSTER.world_size, ROSTER.node_rank, ROSTER.first_rank, ROSTER.seat) == (6, 1, 4, SEATS[2])
    outside = ROSTER._replace(me="algo-2")
    assert (outside.node_rank, outside.first_rank) == (-1, 0)


def test_its_summary_says_what_world_it_is() -> None:
    even = ROSTER._replace(seats=(SEATS[0], SEATS[2]._replace(slots=4)))
    assert even.summary("torchrun") == "2 hosts are here: launcher torchrun, 8 ranks (4 each)"
    one = even._replace(seats=tuple(seat._replace(slots=int(seat == even.seats[0])) for seat in even.seats))
    assert one.summary("ray") == f"2 hosts are here: launcher ray, 1 rank (on {one.seats[0].name})"
    assert ROSTER.summary("ranks") == (
        "2 hosts are here: launcher ranks, 6 ranks (uneven slots); 1 more outside the group"
    )


NAMES = st.text(st.characters(categories=["L", "N", "P", "S"]), max_size=8)
COUNTS = st.integers(0, 65535)
PORTS = st.lists(st.integers(1, 65535), max_size=3).map(tuple)
KEYS = st.just("") | st.from_regex(r"ssh-ed25519 [A-Za-z0-9+/]{1,68}", fullmatch=True)
SEAT = st.builds(Seat, NAMES, NAMES, COUNTS, st.booleans(), NAMES, COUNTS, PORTS, KEYS)
TABLES = st.lists(SEAT, min_size=1, max_size=4, unique_by=lambda seat: seat.name)


@given(TABLES, st.text(max_size=8), NAMES, NAMES, st.integers(1, 65535))
def test_it_survives_the_wire(seats: list[Seat], job: str, session: str, address: str, port: int) -> None:
    roster = Roster(job, session, tuple(seats), address, port, seats[-1].name)
    assert Roster.from_wire(json.loads(json.dumps(roster.to_wire())), seats[-1].name) == roster


WRONG: list[dict[str, Any]] = [
    {"seats": 3}, {"seats": [[]]}, {"master_port": None}, {"seats": []}, {"master_port": "7777"},
    {"master_port": float("inf")}, {"job": 1}, {"session": None}, {"master_address": ["10.0.0.1"]},
    {"seats": [[["algo-10"], "10.0.0.3", 2]]}, {"seats": [["algo-10", "10.0.0.3", "2"]]},
    {"seats": [["algo-10", "10.0.0.3", True]]}, {"seats": [["algo-10", None, 2]]},
    {"seats": [["algo-10", "10.0.0.3", 2, "yes"]]}, {"seats": [["algo-10", "10.0.0.3", 2, True, "", 1, "more"]]},
    {"seats": [["algo-10", "10.0.0.3", 2, True, "", 1, [], "", "more"]]},
    *({"seats": [["algo-10", "10.0.0.3", 2, True, "", 1, [], key]]} for key in
      ("ssh-rsa AAAA", "ssh-ed25519 ", "ssh-ed25519 A\nssh-ed25519 B", "ssh-ed25519 A,", "ssh-ed25519 " + "A" * 300)),
    {"seats": [{"name": "algo-10", "address": "10.0.0.3", "slots": 2}]}, {"master_port": 0}, {"master_port": 65536},
    {"seats": [["algo-10", "10.0.0.3", -1]]}, {"seats": [["algo-10", "10.0.0.3", 10**30]]},
    {"seats": [["algo-10", "10.0.0.3", 1, True, "\x1b[2J"]]}, {"master_address": "a\nb"}, {"session": "\ud800"},
    {"seats": [["algo-10", "10.0.0.3", 2], ["algo-10", "10.0.0.4", 2]]},
    {"seats": [["algo-10", "10.0.0.3", 1, True, "", -1]]},
    *({"seats": [["algo-10", "10.0.0.3", 2, True, "", 1, ports]]} for ports in
      ("", {}, None, 7777, [7777.0], [True], [-1], [0], [65536], [70000], [None], [[7777]], ["7777"], [21000] * 65)),
]  # fmt: skip


@pytest.mark.parametrize("change", WRONG, ids=repr)
def test_what_is_no_roster(change: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="roster"):
        Roster.from_wire({**ROSTER.to_wire(), **change}, "algo-10")


def test_a_million_ports_are_no_seat() -> None:
    seats = [["algo-10", "10.0.0.3", 2, True, "", 1, [21000] * 10**6]]
    with pytest.raises(ValueError, match="the ports of algo-10"):
        Roster.from_wire({**ROSTER.to_wire(), "seats": seats}, "algo-10")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4) | st.just("algo-10"),
    lambda inner: st.lists(inner, max_size=6) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=8,
)
KEYS = st.sampled_from(sorted(ROSTER.to_wire()))


@given(JSON | st.dictionaries(KEYS, JSON).map(lambda change: {**ROSTER.to_wire(), **change}))
def test_garbage_is_a_value_error_and_nothing_else(garbage: Any) -> None:
    try:
        roster = Roster.from_wire(garbage, "algo-10")
    except ValueError:
        return
    assert roster.seat.name == "algo-10"
    assert roster.world_size == sum(seat.slots for seat in roster.group)
    assert 0 <= roster.first_rank <= roster.world_size
