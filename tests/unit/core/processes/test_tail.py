"""What a tail keeps: exactly the last bytes, and how the last tracebacks began."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from musterpoint.core.processes.tail import BEFORE, HEAD, HEADS, SIZE, Tail, left_out

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
