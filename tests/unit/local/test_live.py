"""The hosts' lines below the log: what they say, and that what is written above stays as it is."""

from __future__ import annotations

from typing import Any

import pyte
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from musterpoint.local.live import BY_EVENT, PHASES, HostLine, ago, clock, lines
from musterpoint.local.live_area import LEAST_ROWS, LiveArea, at_edge, at_rest
from musterpoint.tools.viewer.events import EVENTS

from ...examples import examples

Event = tuple[str, dict[str, Any]]
STARTED: list[Event] = [("entry-point-started", {}), ("rollcall-started", {"hosts": 2})]
RUNNING: list[Event] = [*STARTED, ("host-here", {}), ("rollcall-done", {}), ("rank-started", {"rank": 0})]
HISTORIES: list[tuple[list[Event], str, str]] = [
    ([], "starting", ""),
    (STARTED[:1], "preparing", ""),
    ([*STARTED[:1], ("installing", {})], "installing", ""),
    (STARTED, "names", ""),
    ([*STARTED, ("name-resolved", {})], "roll call", ""),
    (RUNNING[:3], "roll call", "2 of 2 hosts here"),
    (RUNNING[:4], "launching", ""),
    (RUNNING, "running", "1 of 1 ranks alive"),
    ([*RUNNING, ("rank-started", {"rank": 1}), ("rank-ended", {"rank": 0})], "running", "1 of 2 ranks alive"),
    ([*RUNNING, ("entry-point-started", {})], "running", "1 of 1 ranks alive"),  # of another of the host's ranks
    ([*RUNNING, ("stop-asked", {})], "stopping", "1 of 1 ranks alive"),
    ([*RUNNING, ("rank-ended", {"rank": 0})], "finishing", "0 of 1 ranks alive"),
    ([*RUNNING, ("rank-ended", {"rank": 0}), ("waiting-for-hosts", {})], "waiting", "0 of 1 ranks alive"),
    ([*RUNNING, ("rank-ended", {"rank": 0}), ("restart", {})], "launching", ""),
    ([*RUNNING, ("of-another-version", {}), ("rank-ended", {})], "running", "1 of 2 ranks alive"),
]


@pytest.mark.parametrize(("events", "phase", "detail"), HISTORIES)
def test_what_a_line_says(events: list[Event], phase: str, detail: str) -> None:
    line = HostLine("algo-1", 100.0)
    for event, facts in events:
        line.hear(event, facts, 171.0)
    said = line.columns(175.0, None if not events else 172.0)
    silent = "last output 3 s ago" if events else ""
    assert (said.host, said.phase, said.detail, said.silent, said.took) == ("algo-1", phase, detail, silent, "1:15")
    assert events or line.columns(175.0, 172.0).phase == "started", "output, and no event"
    if detail.startswith("1 of"):
        assert line.columns(175.0, 170.0).silent == "no output yet, 0:04", "it is from before the rank's start"
    line.end(3, 180.0)
    assert line.columns(999.0, 172.0)[:5] == ("algo-1", "ended with code 3", "", "", "1:20")


def test_phases_and_events_are_those_that_there_are() -> None:
    assert set(BY_EVENT.values()) < set(PHASES)
    assert set(BY_EVENT) < set(EVENTS)


def test_times() -> None:
    assert [clock(seconds) for seconds in (-1, 0.9, 61, 3661)] == ["0:00", "0:00", "1:01", "1:01:01"]
    assert [ago(seconds) for seconds in (0.5, 59.9, 61)] == ["now", "59 s ago", "1:01 ago"]


def test_more_hosts_than_lines() -> None:
    hosts = [HostLine(f"algo-{number}", 0.0) for number in range(1, 31)]
    for host in hosts[5:9]:
        host.end(0, 1.0)
    shown = lines([host.columns(2.0, None) for host in hosts], 60, 4, colour=False)
    assert len(shown) == 4
    assert shown[-1] == "and 27 more hosts, 4 of them ended"
    hosts[0].hear("rank-started", {"rank": 0}, 1.0)
    (text, *_) = lines([host.columns(2.0, 1.5) for host in hosts], 30, 99, colour=True)
    assert text.replace("\x1b[32m", "").replace("\x1b[0m", "") == "algo-1   running         0:02"
    assert "\x1b[32mrunning\x1b[0m" in text


AT_REST = [b"", b"a", b"\n", b"\x1b[0m", "é".encode(), "😀".encode(), b"\x1b7", b"\x1b]0;title\x07", b"\xff", b"\x1b[K"]
INSIDE = [
    b"\x1b", b"a\x1b[", b"\x1b[38;5;1", "é".encode()[:1], "😀".encode()[:3], b"\x1b]0;tit", b"\x1b(", b"\x1b]0;t\x1b",
]  # fmt: skip


@pytest.mark.parametrize(("data", "rests"), [(data, True) for data in AT_REST] + [(data, False) for data in INSIDE])
def test_where_other_bytes_may_follow(data: bytes, rests: bool) -> None:
    assert at_rest(data) is rests


COLUMNS, ROWS, KEPT = 24, 12, 3
PIECES = st.sampled_from([
    b"a line\r\n", b"\r\n", b"no end", b"\rprogress 3/9", b"\x1b[31mred\x1b[0m", b"\x1b[31m", b"\x1b[A\r\x1b[K", b"\t",
    b"a line that is longer than the terminal is wide\r\n", "grün\r\n".encode(), b"\x1b[1mbold\x1b[0m\r\n" * 4,
])  # fmt: skip


def rows_of(screen: pyte.Screen, count: int) -> list[list[tuple[str, str, bool]]]:
    return [
        [(cell.data, cell.fg, cell.bold) for cell in (screen.buffer[row][column] for column in range(COLUMNS))]
        for row in range(count)
    ]


EDGE = [
    (b"x" * 24, True), (b"x" * 23, False), (b"x" * 25, False), (b"x" * 48, True), (b"", False),
    (b"ab\r" + b"x" * 24, True),
    (b"x" * 24 + b"\x1b[0m", True), (b"x" * 24 + b"\b", False), (b"x" * 24 + b"\x1b[3D", False),
    (b"\t\t" + b"x" * 8, True),
    (b"\t\t\t\t", False), ("ü".encode() * 24, True), ("漢".encode() * 12, True), (b"x" * 23 + "漢".encode(), False),
    (b"\x1b]0;a title\x07" + b"x" * 24, True), (("e\u0301" * 24).encode(), True),
]  # fmt: skip


@pytest.mark.parametrize(("line", "full"), EDGE)
def test_a_line_that_ends_at_the_edge(line: bytes, full: bool) -> None:
    assert at_edge(line, COLUMNS) is full


@settings(max_examples=examples(60), deadline=None)
@given(st.lists(PIECES, max_size=25), st.integers(0, ROWS - KEPT - 1))
@example([b"\rprogress 3/9", b"no end", b"no end", b"a line\r\n"], 0)
def test_what_is_written_above_is_as_on_a_smaller_terminal(pieces: list[bytes], before: int) -> None:
    """Between any two pieces the lines are drawn anew: neither text, colour nor the cursor is changed by that."""
    small, whole = pyte.Screen(COLUMNS, ROWS - KEPT), pyte.Screen(COLUMNS, ROWS)
    plain, drawn = pyte.ByteStream(small), pyte.ByteStream(whole)
    area = LiveArea()
    for stream in (plain, drawn):
        stream.feed(b"before\r\n" * before)
    shown, line = 0, b""
    for number, piece in enumerate([b"", *pieces]):
        plain.feed(piece)
        drawn.feed(piece)
        line = (line + piece).rpartition(b"\n")[2]
        text = area.draw([f"\x1b[32mhost {at}\x1b[0m at {number}" for at in range(KEPT)], (COLUMNS, ROWS), line)
        drawn.feed(text)
        assert bool(text) is (small.cursor.x < COLUMNS), "a full line may go on in the next row: it is left alone"
        shown = number if text else shown
        assert [row.rstrip() for row in whole.display[-KEPT:]] == [f"host {at} at {shown}" for at in range(KEPT)]
    assert rows_of(whole, ROWS - KEPT) == rows_of(small, ROWS - KEPT)
    assert (whole.cursor.x, whole.cursor.y, whole.cursor.attrs) == (small.cursor.x, small.cursor.y, small.cursor.attrs)
    drawn.feed(area.close())
    assert not "".join(whole.display[-KEPT:]).strip()
    assert rows_of(whole, ROWS - KEPT) == rows_of(small, ROWS - KEPT)
    assert whole.margins is None or (whole.margins.top, whole.margins.bottom) == (0, ROWS - 1)


@pytest.mark.parametrize("size", [(24, 20), (24, 9), (40, 12), (24, LEAST_ROWS)])
def test_another_size(size: tuple[int, int]) -> None:
    """A larger terminal, or a smaller one: the lines move to its last rows; on a very small one there are none."""
    screen = pyte.Screen(COLUMNS, ROWS)
    stream, area = pyte.ByteStream(screen), LiveArea()
    stream.feed(b"one\r\ntwo\r\nunfinished")
    stream.feed(area.draw(["host a", "host b"], (COLUMNS, ROWS)))
    screen.resize(size[1], size[0])
    stream.feed(area.draw(["host c", "host d"], size))
    stream.feed(b" line\r\n")
    shown = [row.rstrip() for row in screen.display]
    lines = ["host c", "host d"] if size[1] - 2 >= LEAST_ROWS else []
    assert shown[:3] == ["one", "two", "unfinished line"]
    assert [row for row in shown[3:] if row] == lines
    assert not lines or shown[-2:] == lines
