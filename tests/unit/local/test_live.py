"""The hosts' lines below the log: what they say, and that what is written above stays as it is."""

from __future__ import annotations

from typing import Any

import pyte
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from musterpoint.local.live import BY_EVENT, LEAST_ROWS, PHASES, Columns, HostLine, LiveArea, ago, clock
from musterpoint.local.output import at_rest
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


COLUMNS, ROWS, KEPT = 60, 24, 3


class Terminal:
    """A terminal of ``size``, columns and rows."""

    def __init__(self, size: tuple[int, int] = (COLUMNS, ROWS)) -> None:
        self.screen = pyte.Screen(*size)
        self._stream = pyte.ByteStream(self.screen)

    def feed(self, data: bytes) -> list[str]:
        """Writes ``data``; its lines then, but for empty ones."""
        self._stream.feed(data.replace(b"\n", b"\r\n"))
        return [row.rstrip() for row in self.screen.display if row.strip()]


def test_more_hosts_than_lines() -> None:
    hosts = [HostLine(f"algo-{number}", 0.0) for number in range(1, 31)]
    for host in hosts[5:9]:
        host.end(0, 1.0)
    texts = Terminal((60, 12)).feed(LiveArea(False).draw([host.columns(2.0, None) for host in hosts], (60, 12)))
    assert len(texts) == 4
    assert texts[-1] == "and 27 more hosts, 4 of them ended"
    hosts[0].hear("rank-started", {"rank": 0}, 1.0)
    terminal = Terminal((30, 99))
    texts = terminal.feed(LiveArea(True).draw([host.columns(2.0, 1.5) for host in hosts[:3]], (30, 99)))
    assert texts[0] == "algo-1  running  0:02"
    assert terminal.screen.buffer[0][len("algo-1  ")].fg == "green"


AT_REST = [b"", b"a", b"\n", b"\x1b[0m", "é".encode(), "😀".encode(), b"\x1b7", b"\x1b]0;title\x07", b"\xff", b"\x1b[K"]
INSIDE = [
    b"\x1b", b"a\x1b[", b"\x1b[38;5;1", "é".encode()[:1], "😀".encode()[:3], b"\x1b]0;tit", b"\x1b(", b"\x1b]0;t\x1b",
]  # fmt: skip


@pytest.mark.parametrize(("data", "rests"), [(data, True) for data in AT_REST] + [(data, False) for data in INSIDE])
def test_where_other_bytes_may_follow(data: bytes, rests: bool) -> None:
    assert at_rest(data) is rests


PIECES = st.sampled_from([
    b"a line\n", b"\n", b"no end", b"\rprogress 3/9", b"\x1b[31mred\x1b[0m", b"\x1b[A\r\x1b[K", b"\t",
    b"a line that is longer than the terminal is wide: " * 3 + b"\n", "grün\n".encode(), b"\x1b[1mbold\x1b[0m\n" * 4,
])  # fmt: skip


def rows_of(screen: pyte.Screen) -> list[list[tuple[str, str, bool]]]:
    """The cells of a screen, without what is empty at its end."""
    rows = [[screen.buffer[row][column] for column in range(COLUMNS)] for row in range(ROWS)]
    found = [[(cell.data, cell.fg, cell.bold) for cell in row] for row in rows]
    while found and all(cell[0] == " " for cell in found[-1]):
        del found[-1]
    return found


def hosts_at(second: int) -> list[Columns]:
    return [Columns(f"algo-{number}", "running", "", "", clock(second), "green") for number in range(1, KEPT + 1)]


@settings(max_examples=examples(60), deadline=None)
@given(st.lists(PIECES, max_size=25), st.integers(0, ROWS - KEPT - 1))
@example([b"\rprogress 3/9", b"no end", b"no end", b"a line\n"], 0)
def test_what_is_written_above_is_as_without_the_lines(pieces: list[bytes], before: int) -> None:
    """Between any two pieces the lines are drawn anew, below all that is written; at last none is left."""
    usual, drawn, area = Terminal(), Terminal(), LiveArea(True)
    for terminal in (usual, drawn):
        terminal.feed(b"before\n" * before)
    for number, piece in enumerate([b"", *pieces]):
        usual.feed(piece)
        drawn.feed(area.write(piece))
        texts = drawn.feed(area.draw(hosts_at(number), (COLUMNS, ROWS)))
        assert texts[-KEPT:] == [f"algo-{at}  running  {clock(number)}" for at in range(1, KEPT + 1)]
    drawn.feed(area.close())
    assert not drawn.screen.cursor.hidden
    cells = rows_of(drawn.screen)
    assert cells == rows_of(usual.screen)[-len(cells) :] if cells else not rows_of(usual.screen)


def test_an_unfinished_line_stands_above_the_lines() -> None:
    area, terminal = LiveArea(False), Terminal()
    terminal.feed(area.draw(hosts_at(1), (COLUMNS, ROWS)))
    for done in (b"30", b"50"):
        texts = terminal.feed(area.write(b"\r" + done + b" % of all"))
        assert (texts[0], len(texts)) == (f"{done.decode()} % of all", 1 + KEPT)
    texts = terminal.feed(area.write(b"\nand on\n"))
    assert (texts[:2], len(texts)) == (["50 % of all", "and on"], 2 + KEPT)


@pytest.mark.parametrize("size", [(60, 30), (60, 16), (80, 24), (60, LEAST_ROWS)])
def test_another_size(size: tuple[int, int]) -> None:
    """A larger terminal, or a smaller one: the lines stay below the log; on a very small one there are none."""
    terminal, area = Terminal(), LiveArea(False)
    terminal.feed(b"one\ntwo\n" + area.draw(hosts_at(1), (COLUMNS, ROWS)))
    terminal.screen.columns, terminal.screen.lines = size  # its empty rows go first, which pyte's own resize doesn't do
    texts = terminal.feed(area.draw(hosts_at(2), size) + area.write(b"three\n"))
    lines = [f"algo-{at}  running  0:02" for at in range(1, KEPT + 1)] if size[1] > LEAST_ROWS else []
    assert texts == ["one", "two", "three", *lines]
