"""The exception that ends a rank, as the rank itself tells it (:mod:`musterpoint.embedded.startup.exceptions`). Pure.

What a rank sends is a stranger's: it is checked and cut here. It explains how a rank ends, and never makes an end.
"""

from __future__ import annotations

import json
from typing import Any, Callable

from musterpoint.base.records import NamedTuple
from musterpoint.base.untrusted import printable
from musterpoint.core.diagnosis.message_lines import MESSAGE_LINES
from musterpoint.core.diagnosis.traceback import Frame, Raised

MOST_TEXT = 4000
MOST_FRAMES = 101
MOST_CAUSES = 8
_LONGEST_NAME = 1000
_MOST_LINE = 2**31


class RaisedFacts(NamedTuple):
    """``chain``: the exception and those that it was raised from (``caused``) or while handling, as tracebacks print
    them: the first cause first. ``pid``: the process that is about to end.
    """

    pid: int
    chain: tuple[Raised, ...]

    @classmethod
    def from_line(cls, line: str) -> RaisedFacts:
        """Reads the line of a rank.

        Raises:
            ValueError: it is something else.
        """
        try:
            value = json.loads(line.partition(" ")[2])
        except RecursionError:
            raise ValueError("expected what a rank raised") from None
        pid, chain = (value.get("pid"), value.get("chain")) if isinstance(value, dict) else (None, None)
        if type(pid) is not int or not isinstance(chain, list) or not 0 < len(chain) <= MOST_CAUSES:
            raise ValueError("expected a pid and a chain of exceptions")
        found = [_raised(each) for each in reversed(chain)]
        found = [one._replace(start=at, end=at, chained=at > 0) for at, one in enumerate(found)]
        return cls(pid, tuple(found))

    def with_code(self, read: Callable[[str], str | None]) -> tuple[Raised, ...]:
        """``chain`` with the lines of the sources that ``read`` gives."""
        return tuple(one._replace(frames=tuple(_with_code(each, read) for each in one.frames)) for one in self.chain)


def _raised(value: Any) -> Raised:
    text, frames = (value.get("text"), value.get("frames")) if isinstance(value, dict) else (None, None)
    if not isinstance(text, str) or not isinstance(frames, list) or len(frames) > MOST_FRAMES:
        raise ValueError("expected the text and the frames of an exception")
    lines = printable(text, MOST_TEXT, lines=True).split("\n")[:MESSAGE_LINES]
    caused = value.get("caused") == 1
    return Raised("\n".join(lines).rstrip(), tuple(map(_frame, frames)), caused=caused, headed=True)


def _frame(value: Any) -> Frame:
    if not isinstance(value, list) or [type(each) for each in value] != [str, int, str]:
        raise ValueError("expected a file, a line and a function")
    file, line, function = value
    if not 0 <= line < _MOST_LINE:
        raise ValueError("expected the number of a line")
    return Frame(printable(file, _LONGEST_NAME), line, printable(function, _LONGEST_NAME))


def _with_code(frame: Frame, read: Callable[[str], str | None]) -> Frame:
    lines = (read(frame.file) or "").splitlines()
    return frame._replace(code=lines[frame.line - 1].strip()) if 0 < frame.line <= len(lines) else frame
