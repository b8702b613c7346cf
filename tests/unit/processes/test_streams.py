"""Sinks write everything, in order, or know why not."""

from __future__ import annotations

import errno
import os
import sys
from pathlib import Path

import pytest

from musterpoint.processes.streams import Sink, log_file


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
def test_a_last_word_never_waits_for_long() -> None:
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
