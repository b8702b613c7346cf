"""Metric definitions: what they find in output that comes in pieces, and which ones are refused."""

from __future__ import annotations

import itertools
import re
from typing import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from musterpoint.base.errors import UsageError
from musterpoint.base.metrics import MOST_SLOW, MetricReader, Point, Refused, read_metric

LOSS = read_metric("loss", r"loss=([0-9.]+)", "--metric")
ANY = read_metric("lr", r"^lr=(\S*)", "--metric")


def read(*pieces: bytes, prefix: str = "") -> tuple[list[float], list[Refused]]:
    points: list[Point] = []
    refused: list[Refused] = []
    reader = MetricReader((LOSS, ANY), points.append, refused.append, prefix)
    for at, piece in enumerate(pieces):
        reader.feed("algo-1", piece, at)
    reader.end("algo-1", len(pieces))
    return [point.value for point in points], refused


@pytest.mark.parametrize(
    ("pieces", "prefix", "values", "refused"),
    [
        ([b"loss=1.5; val_loss=2\nno\nloss=3"], "", [1.5, 2.0, 3.0], []),
        ([b"10% loss=1\r", b"20% loss=2\r\n", b"lr=0.1\n"], "", [1.0, 2.0, 0.1], []),  # a bar that is written over
        ([b"lr=nan\nlr=inf\nlr=1e-4\nlr=\n"], "", [1e-4], ["nan", "inf", ""]),
        ([b"[rank 0] lr=1\n[rank 10", b"] lr=2\nlr=3\nx [rank 1] lr=4\n"], r"\[rank \d+\] ", [1, 2, 3], []),
    ],
)
def test_every_match_counts(pieces: list[bytes], prefix: str, values: list[float], refused: list[str]) -> None:
    assert read(*pieces, prefix=prefix) == (values, [Refused("lr", text) for text in refused])


def test_hosts_do_not_share_a_line() -> None:
    points: list[Point] = []
    reader = MetricReader((LOSS,), points.append)
    reader.feed("algo-1", b"loss=", 1.0)
    reader.feed("algo-2", b"loss=7\n", 2.0)
    reader.feed("algo-1", b"5\n", 3.0)
    assert points == [Point("loss", "algo-2", 2.0, 7.0), Point("loss", "algo-1", 3.0, 5.0)]


class Endless:
    """A pattern that finds a value, and then no end."""

    def finditer(self, line: str, /) -> Iterator[re.Match[str]]:
        yield from re.finditer("=(.)", line)
        raise TimeoutError


def test_a_line_whose_search_takes_too_long_has_no_values() -> None:
    points: list[Point] = []
    slow: list[tuple[str, int]] = []
    metrics = LOSS._replace(name="endless", pattern=Endless()), LOSS
    reader = MetricReader(metrics, points.append, on_slow=lambda metric, lines: slow.append((metric.name, lines)))
    reader.feed("algo-1", b"loss=1\n" * (MOST_SLOW + 1), 1.0)
    assert [point.name for point in points] == ["loss"] * (MOST_SLOW + 1)
    assert slow == [("endless", 1), ("endless", 2), ("endless", 3)]


def test_a_line_without_an_end_takes_no_memory() -> None:
    points: list[Point] = []
    reader = MetricReader((LOSS,), points.append)
    for _ in range(100):
        reader.feed("algo-1", b"x" * 60_000, 1.0)
    reader.feed("algo-1", b" loss=1\n", 1.0)
    assert len(points) == 1


@given(st.text("los=1.\r\n", max_size=60), st.lists(st.integers(0, 60), max_size=6))
def test_pieces_make_no_difference(text: str, cuts: list[int]) -> None:
    data = text.encode()
    places = sorted({0, len(data), *(min(cut, len(data)) for cut in cuts)})
    pieces = [data[begin:end] for begin, end in itertools.pairwise(places)]
    assert read(*pieces) == read(data)


@pytest.mark.parametrize(
    ("name", "regex", "words"),
    [
        ("", "(a)", "expected a name of 1 to 255 characters"),
        ("n" * 256, "(a)", "expected a name of 1 to 255 characters"),
        ("loss", "", "expected a regular expression of 1 to 500 characters, got 0"),
        ("loss", "(" * 501, "expected a regular expression of 1 to 500 characters, got 501"),
        ("loss", "(", "is no regular expression: missing )"),
        ("loss", "a{99999999999999999}", "is no regular expression"),
        ("loss", "loss=[0-9.]+", "has no group; put parentheses around the number, such as 'loss="),
    ],
)
def test_what_is_refused(name: str, regex: str, words: str) -> None:
    with pytest.raises(UsageError) as caught:
        read_metric(name, regex, "--metric='it'")
    assert str(caught.value).startswith("--metric='it': ")
    assert words in str(caught.value)
