"""Whether a stream is a terminal that takes colours, and how wide it is: one rule for all that people look at.

Sources: https://no-color.org; https://force-color.org; CPython's ``_colorize.can_colorize``, which follows both.
"""

from __future__ import annotations

import os
from typing import Mapping

_NARROWEST = 40


def colours(fd: int, environ: Mapping[str, str]) -> bool:
    """Whether what is written to ``fd`` may have colours: NO_COLOR forbids them, FORCE_COLOR asks for them in a pipe
    too, and otherwise a terminal gets them that isn't called ``dumb``.
    """
    if environ.get("NO_COLOR"):
        return False
    if environ.get("FORCE_COLOR"):
        return True
    return is_terminal(fd) and environ.get("TERM") != "dumb"


def is_terminal(fd: int) -> bool:
    """Whether ``fd`` is open, and a terminal."""
    try:
        return fd >= 0 and os.isatty(fd)
    except OSError:
        return False


def width(fd: int, environ: Mapping[str, str]) -> int | None:
    """The columns of the terminal ``fd``, or those that COLUMNS asks for; None: lines may have any length."""
    asked = environ.get("COLUMNS", "")
    if asked.isdecimal() and int(asked[:6]) > 0:
        return max(int(asked[:6]), _NARROWEST)
    if not is_terminal(fd):
        return None
    try:
        return max(os.get_terminal_size(fd).columns, _NARROWEST)
    except OSError:
        return None
