"""What we write for people and for reports: the console, a terminal's look, the timeline."""

from __future__ import annotations

import fcntl
import json
import os
import struct
import subprocess
import sys
import termios
import threading
import time
from datetime import datetime
from pathlib import Path
from typing import Iterator

import pytest

from musterpoint.base.console import Console
from musterpoint.base.lines import LONGEST_LINE, Lines
from musterpoint.base.loop import Loop
from musterpoint.base.terminal import colours, width
from musterpoint.base.timeline import MOST_OF_A_NAME, Timeline


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("all here", "musterpoint: all here\n"),
        ("two hosts:\nalgo-1\nalgo-2", "musterpoint: two hosts:\n    algo-1\n    algo-2\n"),
        ("", "musterpoint: \n"),
        ("ends with a newline\n", "musterpoint: ends with a newline\n"),
        ("grün", "musterpoint: grün\n"),
        ("not\ud800text", "musterpoint: not\\ud800text\n"),
        ("job \x1b[2J\r:", "musterpoint: job \\x1b[2J\\r:\n"),
        ("a\ttable\n\tof two", "musterpoint: a\ttable\n    \tof two\n"),
    ],
)
def test_a_message_is_one_write_of_whole_lines(text: str, written: str) -> None:
    got: list[bytes] = []
    Console(sink=got.append).say(text)
    assert got == [written.encode()]


def test_every_line_is_masked_also_those_of_others_which_are_as_they_are() -> None:
    got: list[bytes] = []
    console = Console(lambda text: text.replace("hush", "***"), got.append)
    console.say("hush\nand hush")
    console.show("  Collecting hush==1.0 \ud800")
    assert got == [b"musterpoint: ***\n    and ***\n", b"  Collecting ***==1.0 ?\n"]


def test_it_goes_to_stderr_until_somebody_takes_it_over(capfd: pytest.CaptureFixture[str]) -> None:
    console = Console()
    console.say("before")
    got: list[bytes] = []
    console.write_through(got.append)
    console.say("after")
    assert capfd.readouterr() == ("", "musterpoint: before\n")
    assert got == [b"musterpoint: after\n"]


def test_a_closed_stderr_is_no_error(root: Path, environ: dict[str, str]) -> None:
    code = "import os; os.close(2); from musterpoint.base.console import Console; Console().say('x'); print('went on')"
    done = subprocess.run([sys.executable, "-c", code], env=environ, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "went on\n")


RULES = [
    ({}, True, False),
    ({"TERM": "xterm"}, True, False),
    ({"TERM": "dumb"}, False, False),
    ({"NO_COLOR": "1"}, False, False),
    ({"NO_COLOR": ""}, True, False),
    ({"FORCE_COLOR": "1"}, True, True),
    ({"FORCE_COLOR": "1", "TERM": "dumb"}, True, True),
    ({"FORCE_COLOR": "1", "NO_COLOR": "1"}, False, False),
]


@pytest.fixture
def streams() -> Iterator[tuple[int, int]]:
    """A terminal of 72 columns, and a pipe."""
    ours, terminal = os.openpty()
    read, write = os.pipe()
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 72, 0, 0))
    yield terminal, write
    for fd in (ours, terminal, read, write):
        os.close(fd)


@pytest.mark.parametrize(("environ", "on_a_terminal", "in_a_pipe"), RULES)
def test_colours(environ: dict[str, str], on_a_terminal: bool, in_a_pipe: bool, streams: tuple[int, int]) -> None:
    assert [colours(fd, environ) for fd in streams] == [on_a_terminal, in_a_pipe]


@pytest.mark.parametrize(
    ("columns", "expected"),
    [("", (72, None)), ("100", (100, 100)), ("7", (40, 40)), ("0", (72, None)), ("x", (72, None))],
)
def test_the_width(columns: str, expected: tuple[int | None, int | None], streams: tuple[int, int]) -> None:
    assert tuple(width(fd, {"COLUMNS": columns}) for fd in streams) == expected


def test_a_closed_stream_is_no_terminal() -> None:
    assert not colours(-1, {}) and width(-1, {}) is None


def test_events_in_order_with_their_facts() -> None:
    timeline = Timeline("algo-1")
    before = time.time()
    timeline.add("started", version="1")
    timeline.add("rank-ended", rank=3, status=-9)
    first, second = timeline.to_json()
    assert list(first) == ["host", "at", "time", "event", "version"]
    told = datetime.fromisoformat(first["time"].replace("Z", "+00:00"))
    assert told.timestamp() == pytest.approx(first["at"], abs=1e-5)
    assert (first["host"], first["event"], first["version"]) == ("algo-1", "started", "1")
    assert (second["event"], second["rank"], second["status"]) == ("rank-ended", 3, -9)
    assert before - 0.001 <= first["at"] <= second["at"] <= time.time() + 0.001
    assert json.loads(json.dumps([first, second])) == [first, second]


def test_a_host_that_is_named_late_is_that_of_every_event_also_of_one_about_another() -> None:
    timeline = Timeline()
    timeline.add("host-lost", host="algo-2", why="connection refused")
    timeline.set_host("algo-1")
    (row,) = timeline.to_json()
    assert (row["host"], row["of"], row["why"]) == ("algo-1", "algo-2", "connection refused")


def test_any_thread_may_add() -> None:
    timeline = Timeline()
    threads = [threading.Thread(target=lambda: [timeline.add("e") for _ in range(500)]) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(timeline.to_json()) == 2000


def test_what_happens_without_end_is_kept_up_to_a_number_and_then_counted() -> None:
    timeline = Timeline("algo-1")
    for number in range(MOST_OF_A_NAME + 7):
        timeline.add("registered", rank=number)
    timeline.add("over", code=0)
    *many, last = timeline.to_json()
    assert (len(many), many[-1]["rank"], many[-1]["left_out"]) == (MOST_OF_A_NAME, MOST_OF_A_NAME - 1, 7)
    assert "left_out" not in many[-2]
    assert (last["event"], last["code"]) == ("over", 0)


@pytest.mark.parametrize(
    ("pieces", "lines"),
    [
        ([b"one\ntwo\n"], ["one", "two"]),
        ([b"o", b"ne\r\ntw", b"o"], ["one", "two"]),
        ([b"", b"\n\n"], ["", ""]),
        ([b"\xff\xfe\n"], ["\ufffd\ufffd"]),
        ([b"x" * (LONGEST_LINE + 1), b"y\n"], ["x" * (LONGEST_LINE + 1), "y"]),
        ([b"a " + b"x" * (LONGEST_LINE - 5) + b" sec", b"ret\n"], ["a " + "x" * (LONGEST_LINE - 5) + " ", "secret"]),
    ],
)
def test_lines(pieces: list[bytes], lines: list[str]) -> None:
    loop, received, ends = Loop(), [], []  # type: ignore[var-annotated]
    read, write = os.pipe()
    reader = Lines(loop, read, received.append, lambda: ends.append(True))
    for piece in pieces:
        while piece:
            piece = piece[os.write(write, piece[:4096]) :]
            loop.turn(0)
    os.close(write)
    while not ends:
        loop.turn(1)
    reader.close()
    reader.close()
    assert (received, ends) == (lines, [True])
    loop.close()


def test_what_still_lies_there_is_read_when_it_is_closed() -> None:
    loop, received = Loop(), []  # type: ignore[var-annotated]
    read, write = os.pipe()
    reader = Lines(loop, read, received.append)
    os.write(write, b"one\ntw")
    reader.close()
    os.close(write)
    assert received == ["one", "tw"]
    loop.close()
