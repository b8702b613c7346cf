"""Seats as columns and back, and what is no such table."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from musterpoint.base.readers import MOST_HOSTS
from musterpoint.core.channel import wire
from musterpoint.core.rollcall.roster import Roster, Seat
from musterpoint.core.rollcall.seat_columns import fold, pack_roster, read_roster, unfold

MANY = tuple(
    Seat(f"algo-{number}", f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}", 8, True, "0.1", 8)
    for number in range(1, 3001)
)
NAMES = st.sampled_from(["algo-9", "algo-10", "node008", "node009", "node010", "a", "a-7.b", "a-8.b", "٣", "x\n1", "0"])
ADDRESSES = st.sampled_from(["10.0.0.1", "10.0.0.255", "010.0.0.1", "10.0.0.256", "::1", "", "1.2.3"])
CELLS = st.none() | st.booleans() | st.integers(0, 2) | st.text(max_size=3) | st.lists(st.integers(0, 9), max_size=2)
ROWS = st.lists(st.tuples(NAMES, ADDRESSES, CELLS), max_size=8)


def through_json(value: Any) -> Any:
    return json.loads(json.dumps(value))


@given(ROWS)
def test_what_is_folded_comes_back(rows: list[tuple[Any, ...]]) -> None:
    assert through_json(unfold(through_json(fold(rows)))) == through_json(rows)


@pytest.mark.parametrize("names", [["n008", "n009", "n010", "n011"], ["h-9.x", "h-10.x", "h-11.x"], ["a1", "a2", "b7"]])
def test_names_that_count_up(names: list[str]) -> None:
    assert [row[0] for row in unfold(through_json(fold([(name,) for name in names])))] == names


def test_a_roster_of_many_alike_hosts_is_small() -> None:
    roster = Roster("job", "5e55" * 8, MANY, "10.0.0.1", 7777, "algo-1")
    frame = pack_roster(roster)
    assert read_roster(wire.unpack(frame[wire.HEAD :], compressed=True)["roster"], "algo-7") == roster._replace(
        me="algo-7"
    )
    assert len(frame) < 4 * len(MANY) < len(wire.pack_large("roster", roster=roster.to_wire()))


def test_rows_are_read_too() -> None:
    roster = Roster("job", "5e55" * 8, MANY[:3], "10.0.0.1", 7777, "algo-1")
    assert read_roster(through_json(roster.to_wire()), "algo-1") == roster


@pytest.mark.parametrize(
    "table",
    [
        None, [], {"count": 1}, {"count": -1, "columns": []}, {"count": True, "columns": []},
        {"count": MOST_HOSTS + 1, "columns": [{"all": 1}]}, {"count": 1, "columns": [{"all": 1}] * 17},
        {"count": 2, "columns": [{"each": [1]}]}, {"count": 2, "columns": [{"v4": ["00", "00", "00", "0000"]}]},
        {"count": 1, "columns": [{"v4": ["00", "00", "00"]}]},
        {"count": 1, "columns": [{"v4": ["0x", "00", "00", "00"]}]},
        {"count": 2, "columns": [{"runs": [["a", "1", 1, ""]]}]}, {"count": 1, "columns": [{"runs": [["a", "1", 1]]}]},
        {"count": 2, "columns": [{"runs": [["a", "1", 3, ""], ["b", "1", -1, ""]]}]},
        {"count": 1, "columns": [{"runs": [["a", "٣", 1, ""]]}]},
        {"count": 1, "columns": [{"runs": [["a" * 256, "1", 1, ""]]}]},
        {"count": 1, "columns": [{"all": {}}]},
        {"count": 1, "columns": [{"all": [[1]]}]}, {"count": 1, "columns": [{}]},
        {"count": 1, "columns": [{"all": 1, "each": [1]}]}, {"count": 1, "columns": [7]},
    ],
)  # fmt: skip
def test_what_is_no_table(table: Any) -> None:
    with pytest.raises(ValueError, match=r"table of seats|hexadecimal"):
        unfold(table)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(["all", "each", "v4", "runs"]), inner),
    max_leaves=12,
)


@given(st.integers(0, 4), st.lists(JSON, max_size=3))
def test_garbage_is_refused_or_rows(count: int, columns: list[Any]) -> None:
    try:
        rows = unfold({"count": count, "columns": columns})
    except ValueError:
        return
    assert len(rows) == (count if columns else 0)
