"""Texts of others: cut, and nothing in them that a terminal or a log obeys."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from musterpoint.untrusted import clip, printable

TEXTS = st.text(st.one_of(st.characters(), st.sampled_from("\x1b\n\r\t\x9b\u202e\u2028\ud800é€😀 ")))


@given(TEXTS, st.integers(3, 50))
def test_clipping(text: str, limit: int) -> None:
    clipped = clip(text, limit)
    assert len(clipped.encode("utf-8", "replace")) <= limit
    assert clipped == text or text.startswith(clipped[:-1])


@given(TEXTS, st.integers(3, 50), st.booleans())
def test_what_is_printed_is_cut_and_harmless(text: str, most: int, lines: bool) -> None:
    shown = printable(text, most, lines)
    assert len(shown.encode()) <= most
    kept = shown.replace("\n", "").replace("\t", "") if lines else shown
    assert all(mark.isprintable() or (mark.isspace() and mark > "\x9f") for mark in kept)
    if text.isprintable() and len(text.encode()) <= most:
        assert shown == text


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b[2J", r"\x1b[2J"), ("a\nloss=1", r"a\nloss=1"), ("\u202eabc", r"\u202eabc"), ("\ud800", r"\ud800"),
        ("é" * 10, "é" * 10), ("é" * 11, "é" * 8 + "…"),
        ("x" * 21, "x" * 17 + "…"), ("x" * 17 + " yz!", "x" * 17 + "…"),
    ],
)  # fmt: skip
def test_rows(text: str, shown: str) -> None:
    assert printable(text, 20) == shown
