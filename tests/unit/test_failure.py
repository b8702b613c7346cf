"""The failure reason: 900 bytes, and what became of the other ranks."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from musterpoint.failure import MOST_REASON, Failure, Secondary, fit, with_secondary
from musterpoint.untrusted import clip

FAILURE = Failure("algo-3", 1, "user", "oom", "RuntimeError: CUDA out of memory\nrank 5 on algo-3, exit code 1", 5, 1)


def test_secondary_failures_are_counted() -> None:
    assert with_secondary(FAILURE, Secondary()) == FAILURE.reason
    long = with_secondary(FAILURE._replace(reason="ü" * 450), Secondary(lost=3))
    assert long.endswith("…\n3 other ranks failed after it (peer lost)")
    assert len(long.encode()) <= MOST_REASON


@pytest.mark.parametrize(
    ("others", "said"),
    [
        (Secondary(lost=1), "1 other rank failed after it (peer lost)"),
        (Secondary(lost=7), "7 other ranks failed after it (peer lost)"),
        (Secondary(same=1), "1 other rank failed the same way"),
        (Secondary(same=3), "3 other ranks failed the same way"),
        (Secondary(other=2), "2 other ranks failed with another error"),
        (Secondary(2, 1, 0), "3 other ranks failed: 2 the same way, 1 after it (peer lost)"),
        (Secondary(2, 4, 1), "7 other ranks failed: 2 the same way, 4 after it (peer lost), 1 with another error"),
    ],
)
def test_what_became_of_the_others(others: Secondary, said: str) -> None:
    assert with_secondary(FAILURE, others) == f"{FAILURE.reason}\n{said}"


@given(st.lists(st.text(max_size=1500), min_size=1, max_size=4), st.booleans())
def test_nothing_is_ever_too_long_or_cut_inside_a_character(parts: list[str], last_first: bool) -> None:
    fitted = fit([*parts[:-1], clip(parts[-1], 200)], last_first=last_first)
    assert len(fitted.encode("utf-8", "replace")) <= MOST_REASON
