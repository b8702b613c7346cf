"""When colours are used, and how wide lines may be."""

from __future__ import annotations

import fcntl
import os
import struct
import termios
from typing import Iterator

import pytest

from musterpoint.base.terminal import colours, width

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
