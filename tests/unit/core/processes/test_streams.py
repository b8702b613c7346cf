"""Sinks write everything, in order, or report why not; pipes, prefixes, and where output goes by rank and options."""

from __future__ import annotations

import errno
import os
import re
import sys
from pathlib import Path
from typing import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from musterpoint.base.errors import UsageError
from musterpoint.core.processes.streams import (
    FORWARD_ALL,
    Label,
    Outlets,
    OutputOptions,
    Prefix,
    Sink,
    log_file,
    open_pipe,
    pipe_size,
    prefix_of,
    ranks_of,
    same_file,
)
from musterpoint.core.processes.tail import BEFORE, HEAD, HEADS, SIZE, Tail, left_out


def test_parts_are_written_in_order(tmp_path: Path) -> None:
    troubles: list[OSError] = []
    sink = log_file(str(tmp_path / "log"), troubles.append)
    sink.write(b"", b"one ", memoryview(b"two"))
    assert sink.mid_line
    sink.write(b"\n")
    assert not sink.mid_line
    sink.write()
    sink.close()
    sink.write(b"after the end")
    again = log_file(str(tmp_path / "log"), troubles.append)
    again.write(b"appended\n")
    again.close()
    assert (tmp_path / "log").read_bytes() == b"one two\nappended\n"
    assert troubles == []


def test_a_file_that_cannot_be_opened_drops_everything(tmp_path: Path) -> None:
    troubles: list[OSError] = []
    sink = log_file(str(tmp_path / "missing" / "log"), troubles.append)
    sink.write(b"lost")
    assert [error.errno for error in troubles] == [errno.ENOENT]


def test_a_reader_that_has_gone_is_no_trouble() -> None:
    read_end, write_end = os.pipe()
    os.close(read_end)
    troubles: list[OSError] = []
    sink = Sink(write_end, troubles.append)
    sink.write(b"to nobody")
    assert sink.gone
    assert troubles == []
    sink.close()


@pytest.mark.skipif(sys.platform == "win32", reason="selects a pipe")
def test_a_last_message_never_waits_for_long() -> None:
    read_end, write_end = os.pipe()
    sink = Sink(write_end)
    sink.write_within(b"hello", 1.0)
    assert os.read(read_end, 10) == b"hello"
    os.set_blocking(write_end, False)
    with pytest.raises(BlockingIOError):
        while True:
            os.write(write_end, bytes(65536))
    sink.write_within(b"dropped", 0.01)
    os.close(read_end)
    sink.close()


@pytest.mark.parametrize("kind", ["link", "fifo", "device", "directory"])
def test_what_lies_in_a_log_files_place_is_not_followed(tmp_path: Path, kind: str) -> None:
    """Below the output directory the program may have made it; nothing waits for a reader of a pipe."""
    place, outside = tmp_path / "rank-0.log", tmp_path / "outside"
    outside.write_text("somebody else's")
    make = {
        "link": lambda: place.symlink_to(outside), "fifo": lambda: os.mkfifo(place), "directory": place.mkdir,
        "device": lambda: place.symlink_to("/dev/null"),
    }  # fmt: skip
    make[kind]()
    troubles: list[OSError] = []
    sink = log_file(str(place), troubles.append)
    sink.write(b"a line\n")
    sink.close()
    assert len(troubles) == 1
    assert outside.read_text() == "somebody else's"


@pytest.mark.parametrize(
    ("mode", "rank", "label", "prefix"),
    [
        ("none", 3, "both", b""),
        ("rank", 3, "both", b"[rank 3] "),
        ("rank", None, "both", b"[torchrun] "),
        ("host", 3, "stderr", b"[algo-2:3] "),
        ("mpi", 3, "both", b"[1,mpirank:3,algo-2]<stdout>:"),
        ("mpi", 3, "stderr", b"[1,mpirank:3,algo-2]<stderr>:"),
        ("mpi", None, "both", b""),
    ],
)
def test_prefixes(mode: Prefix, rank: int | None, label: Label, prefix: bytes) -> None:
    assert prefix_of(mode, "algo-2", rank, "torchrun", label) == prefix


def test_rank_lists() -> None:
    assert ranks_of("all") is None
    assert ranks_of("0, 8") == {0, 8}
    assert ranks_of("local:0,1", 8) == {8, 9}


@pytest.mark.parametrize(("streams", "kib"), [(0, 1024), (1, 1024), (16, 1024), (17, 512), (64, 256), (500, 64)])
def test_pipes_share_what_there_is(streams: int, kib: int) -> None:
    assert pipe_size(streams) == kib << 10


def test_only_our_end_of_a_pipe_never_blocks() -> None:
    read_end, write_end = open_pipe(1 << 20)
    try:
        assert not os.get_blocking(read_end)
        assert os.get_blocking(write_end)
        assert not os.get_inheritable(read_end)
        assert not os.get_inheritable(write_end)
        assert not same_file(read_end, 0) or read_end == 0
        assert same_file(read_end, write_end)
    finally:
        os.close(read_end)
        os.close(write_end)
    assert not same_file(write_end, 0)


@pytest.fixture
def ends() -> Iterator[tuple[int, int]]:
    pipes = [os.pipe(), os.pipe()]
    yield pipes[0][1], pipes[1][1]
    for pipe in pipes:
        for fd in pipe:
            os.close(fd)


def outlets(ends: tuple[int, int], options: OutputOptions = FORWARD_ALL) -> Outlets:
    return Outlets(*ends, options._replace(host="algo-1"), lambda error, path: None)


def test_stdout_and_stderr_are_one_where_ours_are(ends: tuple[int, int]) -> None:
    together = outlets((ends[0], ends[0]))
    assert together.shared
    assert together.stream(0, 0, "", "both", 64).sink is together.out is together.err
    apart = outlets(ends)
    assert not apart.shared
    assert apart.stream(0, 0, "", "stdout", 64).sink is apart.out
    assert apart.stream(0, 0, "", "stderr", 64).sink is apart.err


def test_streams_of_one_process_share_its_file_and_have_its_prefix(ends: tuple[int, int], tmp_path: Path) -> None:
    both = outlets(ends, OutputOptions("rank", log_dir=str(tmp_path)))
    out, err = both.stream(0, 3, "", "stdout", 64), both.stream(0, 3, "", "stderr", 64)
    assert out.file is err.file is not None
    assert out.prefix == err.prefix == b"[rank 3] "
    both.close()


def test_a_folder_that_cannot_be_made(ends: tuple[int, int], tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match=r"--log-dir .*/file/logs: can't make the directory: Not a directory"):
        outlets(ends, OutputOptions(log_dir=str(tmp_path / "file" / "logs")))


HEADER = b"Traceback (most recent call last):\n"
GAP = re.compile(re.escape(left_out(7)).replace(b"7", rb"(\d+)"))


def fed(parts: list[bytes], size: int = 64) -> bytes:
    tail = Tail(size)
    for part in parts:
        tail.feed(memoryview(part))
    return tail.text()


@given(st.lists(st.binary(max_size=70).filter(lambda part: b"T" not in part), max_size=30))
def test_it_keeps_the_last_bytes(parts: list[bytes]) -> None:
    assert fed(parts) == b"".join(parts)[-64:]


@given(
    st.lists(st.sampled_from([b"x" * 100, HEADER, HEADER[:9], HEADER[9:], b"y" * 20_000, b"", b"z\n"]), max_size=25),
    st.integers(0, 10_000),
    st.integers(1, 90_000),
)
def test_it_keeps_how_the_last_tracebacks_began(parts: list[bytes], start: int, chunk: int) -> None:
    """Whatever the pieces in which it comes: every byte kept is in its place, and the gaps add up."""
    whole = b"".join(parts)[start:]
    kept = fed([whole[at : at + chunk] for at in range(0, len(whole), chunk)], SIZE)
    pieces = GAP.split(kept)
    at = len(whole) - sum(int(piece) if number % 2 else len(piece) for number, piece in enumerate(pieces))
    for number, piece in enumerate(pieces):
        if number % 2 == 0:
            assert whole[at : at + len(piece)] == piece
        at += int(piece) if number % 2 else len(piece)
    assert whole[-SIZE:] == kept[-min(SIZE, len(whole)) :] if whole else kept == b""
    begins = [found.start() for found in re.finditer(re.escape(HEADER[:-2]), whole)]
    for begin in begins[-HEADS:]:
        assert whole[max(0, begin - BEFORE) : begin + HEAD - BEFORE] in kept


def test_a_traceback_of_five_megabytes_keeps_its_beginning() -> None:
    text = b"before\n" + HEADER + b'  File "train.py", line 1\nValueError: ' + b"y" * 5_000_000 + b"\n"
    kept = fed([text[at : at + (256 << 10)] for at in range(0, len(text), 256 << 10)], SIZE)
    assert kept.startswith(text[: HEAD - 1])
    assert len(kept) < SIZE + HEAD + 100
