from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from musterpoint.job.cluster import natural


@pytest.mark.parametrize(
    "names",
    [
        ("algo-1", "algo-2", "algo-10", "algo-100"),
        ("algo-1-w8w6m", "algo-2-w8w6m", "algo-10-w8w6m"),  # SDK v2 local mode
        ("sagemaker-local",),
        ("node001", "node2", "node010"),
        ("10.0.0.2", "10.0.0.10", "10.0.1.1"),
        ("a", "a-1", "b"),
        ("algo-01", "algo-1", "algo-001x"),
        (),
    ],
)
def test_numbers_count_by_value(names: tuple[str, ...]) -> None:
    shuffled = list(names)
    random.Random(0).shuffle(shuffled)
    assert natural(shuffled) == names


@given(st.lists(st.text(), unique=True))
def test_order_does_not_depend_on_the_order_given(names: list[str]) -> None:
    assert natural(names) == natural(reversed(names))
    assert sorted(natural(names)) == sorted(names)


def test_thousands_of_digits_are_no_trouble() -> None:
    assert natural(["a" + "9" * 6000, "a1"]) == ("a1", "a" + "9" * 6000)
