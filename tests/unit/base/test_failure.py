"""The failure reason: 900 bytes, and what became of the other ranks."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from musterpoint.base.failure import MOST_REASON, Failure, Secondary, after_others, fit, with_secondary
from musterpoint.base.untrusted import clip

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


LEFT_ALONE = Failure(
    "algo-1", 1, "user", "peer",
    "RuntimeError: Connection closed by peer\nrank 0 (local rank 0) on algo-1, exit code 1\n"
    '  File "t.py", line 9, in save', 0, 0, inside="save",
)  # fmt: skip


def test_a_rank_whose_peers_had_ended_well_failed_by_the_programs_own_mistake() -> None:
    """It is said behind who failed; where other ranks may still tell of a cause, it stays a symptom."""
    told = after_others(LEFT_ALONE, [1, 2, 3], 4)
    first, who, said, frame = told.reason.split("\n")
    assert (first, who, frame) == tuple(LEFT_ALONE.reason.split("\n"))
    assert said == "ranks 1–3 had ended with 0; rank 0 was still in save"
    assert told.kind == "user"
    assert told.is_same_as(LEFT_ALONE)
    assert after_others(LEFT_ALONE._replace(ended=(1,)), [3], 4).kind == "peer"
    assert "ranks 1, 3 had ended" in after_others(LEFT_ALONE._replace(ended=(1,)), [3], 4).reason
    assert "rank 1 had ended with 0; rank 0 was still running" in after_others(
        LEFT_ALONE._replace(inside=""), [1], 2
    ).reason  # fmt: skip
    assert after_others(LEFT_ALONE, [], 4) == LEFT_ALONE
    long = LEFT_ALONE._replace(reason="RuntimeError: " + "x" * 2000 + LEFT_ALONE.reason[39:])
    assert "had ended with 0" in after_others(long, range(1, 1000), 1000).reason


def test_the_later_words_of_a_rank_are_no_other_ranks() -> None:
    first = FAILURE._replace(rank=1, local_rank=0, reason="exit code 1")
    later, lost = first._replace(code=137, reason="killed"), first._replace(rank=0, kind="peer", reason="closed")
    assert Secondary.of([later, lost], first) == Secondary(lost=1)
