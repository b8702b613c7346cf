from __future__ import annotations

from typing import Any, NamedTuple

import pytest

from musterpoint.untrusted import check_types


class Row(NamedTuple):
    name: Any = "algo-1"
    count: Any = 1
    here: Any = True
    rank: Any = None


TYPES = {"name": (str,), "count": (int,), "here": (bool,), "rank": (int, type(None))}


@pytest.mark.parametrize("row", [Row(), Row(rank=3), Row("", 0, False, 0)])
def test_what_fits(row: Row) -> None:
    check_types(row, TYPES)


@pytest.mark.parametrize(
    ("row", "complaint"),
    [
        (Row(name=None), "a row's name is None"),
        (Row(count="1"), "a row's count is '1'"),
        (Row(count=True), "a row's count is True"),
        (Row(count=1.0), "a row's count is 1.0"),
        (Row(here=1), "a row's here is 1"),
        (Row(rank=False), "a row's rank is False"),
    ],
)
def test_what_does_not(row: Row, complaint: str) -> None:
    with pytest.raises(ValueError, match=f"^{complaint}$"):
        check_types(row, TYPES, "a row's ")
