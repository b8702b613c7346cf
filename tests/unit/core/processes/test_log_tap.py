"""The copy of ranks' output for the program that searches it: exact, and never waited for."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Iterator

import pytest

from musterpoint.core.processes import log_tap
from musterpoint.core.processes.pump import Pump
from musterpoint.embedded.programs import log_matcher


def test_both_sides_agree_on_the_frames() -> None:
    assert (log_tap.HEADER.format, log_tap.GAP) == (log_matcher.HEADER.format, log_matcher.GAP)


@pytest.fixture
def tapped(tmp_path: Path) -> Iterator[tuple[Pump, int, Path]]:
    """A pump that writes to a file, and the end of its copy from which the program reads."""
    path = tmp_path / "out"
    out = os.open(path, os.O_WRONLY | os.O_CREAT, 0o600)
    pump = Pump(out_fd=out, err_fd=out)
    read, write = os.pipe()
    pump.copy_to(write)
    yield pump, read, path
    os.close(read)
    os.close(out)


def whole(read: int) -> list[tuple[int, int, bytes | None]]:
    """All frames up to the end: stream, rank and bytes."""
    data = bytearray()
    while piece := os.read(read, 1 << 20):
        data += piece
    return [frame[1:] for frame in log_matcher.frames(data)]


def test_what_ranks_print_is_copied_and_what_others_print_is_not(tapped: tuple[Pump, int, Path]) -> None:
    pump, read, path = tapped
    ends = [pump.open(4, "")[0], pump.open(5, "")[0], pump.open(None, "launcher")[0]]
    for number, end in enumerate(ends):
        os.write(end, b"line %d\xff\n" % number)
    assert pump.tail(5) == b"line 1\xff\n"  # read by another thread than the pump's, and copied all the same
    pump.start()
    for end in ends:
        os.close(end)
    assert pump.drain(500)
    frames = whole(read)
    assert sorted((rank, data) for _stream, rank, data in frames if data) == [
        (4, b"line 0\xff\n"),
        (5, b"line 1\xff\n"),
    ]
    assert len({stream for stream, _rank, _data in frames}) == 2
    assert sorted(path.read_bytes().splitlines()) == [b"line 0\xff", b"line 1\xff", b"line 2\xff"]


def test_a_program_that_never_reads_holds_nothing_up(
    tapped: tuple[Pump, int, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_tap, "MOST_WAITING", 1 << 20)
    pump, read, path = tapped
    end, _ = pump.open(0, "")
    pump.start()
    line = b"x" * 99 + b"\n"
    for _ in range(300):
        os.write(end, line * 100)
    os.close(end)
    assert pump.drain(500)
    assert path.stat().st_size == 300 * 100 * len(line)
    copied = b"".join(data or b"" for _stream, _rank, data in whole(read))
    assert 0 < len(copied) < 3 << 20
    assert copied == (line * 40_000)[: len(copied)]


def test_it_reads_again_and_learns_of_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    from musterpoint.base.loop import Loop

    monkeypatch.setattr(log_tap, "MOST_WAITING", 4 << 20)
    loop = Loop()
    read, write = os.pipe()
    tap = log_tap.LogTap(write, loop)
    block = b"y" * (1 << 20)
    for number in range(9):
        tap.feed(float(number), 1, 0, memoryview(block))
    data = bytearray()
    found: list[bytes | None] = [b""]
    while None not in found:
        data += os.read(read, 1 << 20)
        found += [frame[3] for frame in log_matcher.frames(data)]
        loop.turn(0)
    tap.feed(9.0, 1, 0, memoryview(b"again\n"))
    data += os.read(read, 1 << 20)
    found += [frame[3] for frame in log_matcher.frames(data)]
    assert found[-2:] == [None, b"again\n"]
    assert set(found[1:-2]) == {block}
    os.close(read)
    tap.feed(10.0, 1, 0, memoryview(b"nobody reads\n"))
    tap.feed(11.0, 1, 0, memoryview(b"nor this\n"))
    tap.close()
    loop.close()
