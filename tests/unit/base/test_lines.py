"""A descriptor cut into lines."""

from __future__ import annotations

import os

import pytest

from musterpoint.base.lines import LONGEST_LINE, Lines
from musterpoint.base.loop import Loop


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
