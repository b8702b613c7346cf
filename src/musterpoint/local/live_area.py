"""The last rows of a terminal, kept for the hosts' lines: what is written above scrolls above them, byte for byte.

The terminal itself keeps the rows out of what scrolls (DECSTBM, as apt's progress bar does), so nothing that the job
writes is changed, also no progress bar and no line without an end. Source: xterm's control sequences (ctlseqs).
"""

from __future__ import annotations

import re
import unicodedata
from typing import Sequence

_SAVE, _RESTORE = "\x1b7", "\x1b8"
_WHOLE_SCREEN = "\x1b[r"
_INDEX = "\x1bD"
"""One row down in the same column, as a line feed without a carriage return."""
LEAST_ROWS = 6
"""Rows that stay for the job's output; on a smaller terminal no lines are shown."""
_UNFINISHED = re.compile(rb"\x1b(?:[ -/]*|\[[0-?]*[ -/]*|[\]P^_X][^\x07\x1b]{0,4096}\x1b?)$")
"""The beginning of an escape sequence: what is written next belongs to it."""


def at_rest(data: bytes) -> bool:
    """Whether ``data`` ends where other bytes may follow: in no escape sequence, and in no character."""
    if _UNFINISHED.search(data[-4200:]):
        return False
    tail = data[-3:]
    for back, byte in enumerate(reversed(tail), 1):
        if byte < 0x80:
            return True
        if byte >= 0xC0:
            return byte >= 0xF8 or back >= (2 if byte < 0xE0 else 3 if byte < 0xF0 else 4)
    return True


_STEP = re.compile(r"\x1b\[[0-?]*[ -/]*([@-~])|\x1b(?:[\]P^_X][^\x07\x1b]*(?:\x07|\x1b\\\\)|[ -/]*[0-~])|.", re.DOTALL)
"""An escape sequence, of which the first group has the last letter where it is a control sequence; or a character."""
_STAYS = "mKJAB"
"""Control sequences that leave the cursor in its column: colours, erasing, and one row up or down."""
_TAB = 8


def at_edge(line: bytes, columns: int) -> bool:
    """Whether an unfinished ``line`` ends exactly at the terminal's last column.

    The cursor then stands on its last character, and the next one goes to the next row. Not every terminal keeps that
    with a saved cursor, so nothing may be drawn elsewhere in between.
    """
    column = 0
    for step in _STEP.finditer(line.decode("utf-8", "replace").rpartition("\r")[2]):
        text = step[0]
        if text == "\t":
            column = min(columns - 1, column // _TAB * _TAB + _TAB)
        elif text == "\b":
            column = max(0, min(column, columns - 1) - 1)
        elif step[1] and step[1] not in _STAYS:
            column = 0  # it stands somewhere else, and not beyond the last column
        elif text >= " " and text != "\x7f":
            width = _width(text)
            column = width if column + width > columns else column + width
    return column >= columns


def _width(character: str) -> int:
    if unicodedata.combining(character):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


class LiveArea:
    """The last ``rows`` rows of a terminal. Its methods return what to write; ``size`` is the terminal's (columns,
    rows) now.
    """

    def __init__(self) -> None:
        self._size = (0, 0)
        self._rows = 0

    def draw(self, lines: Sequence[str], size: tuple[int, int], unfinished: bytes = b"") -> bytes:
        """Shows ``lines``; as many as the area has, which is made anew where the terminal's size has changed.

        ``unfinished``: what was written above since the last line end; nothing is drawn where that ends at the edge.
        """
        if at_edge(unfinished, size[0]):
            return b""
        text = ""
        if size != self._size or len(lines) != self._rows:
            text = self._end(resized=size != self._size) + self._begin(len(lines), size)
        if self._rows:
            top = self._size[1] - self._rows
            # the cursor's attributes are saved with it
            text += (
                _SAVE
                + "\x1b[0m"
                + "".join(f"\x1b[{top + at};1H\x1b[2K{line}" for at, line in enumerate(lines, 1))
                + _RESTORE
            )
        return text.encode()

    def close(self) -> bytes:
        """Gives the rows back, empty."""
        text = self._end(resized=False)
        self._size, self._rows = (0, 0), 0
        return text.encode()

    def _begin(self, rows: int, size: tuple[int, int]) -> str:
        self._size = size
        self._rows = rows if size[1] - rows >= LEAST_ROWS else 0
        if not self._rows:
            return ""
        margins = f"\x1b[1;{size[1] - rows}r"
        # first the cursor leaves the rows; setting margins moves it, so it is saved
        return f"{_INDEX * rows}\x1b[{rows}A{_SAVE}{margins}{_RESTORE}"

    def _end(self, resized: bool) -> str:
        """All rows scroll again, and the area is empty; where it is isn't known if the terminal was ``resized``: then
        all below the cursor is.
        """
        if not self._rows:
            return ""
        place = "\x1b[B\r" if resized else f"\x1b[{self._size[1] - self._rows + 1};1H"
        return f"{_SAVE}{_WHOLE_SCREEN}{_RESTORE}{_SAVE}{place}\x1b[0m\x1b[J{_RESTORE}"
