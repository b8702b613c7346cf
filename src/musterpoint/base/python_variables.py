"""Variables of the user's Python that would have programs of ours end otherwise."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Mapping

if TYPE_CHECKING:
    from types import TracebackType


INSPECT = "PYTHONINSPECT"
"""Has Python ask at a prompt at its end, and lose its exit code where nobody can be asked."""
OF_PROGRAMS = (INSPECT, "PYTHONWARNINGS")
"""Variables for the user's program by which pip, or a program of ours, ends otherwise."""


def for_tools(environ: Mapping[str, str]) -> dict[str, str]:
    """``environ`` for a Python that isn't the user's program: without :data:`OF_PROGRAMS`."""
    return {name: value for name, value in environ.items() if name not in OF_PROGRAMS}


def end_without_prompt() -> None:
    """Has this program end as without PYTHONINSPECT, which Python reads once, at its start.

    ``python -i`` is left alone: somebody asked for that prompt.
    """
    if sys.flags.inspect and not sys.flags.interactive:
        sys.excepthook = _end  # Python calls it for SystemExit, too, before a prompt


def _end(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """Does what Python does at an end without a prompt."""
    code = 1
    if not isinstance(error, SystemExit):
        sys.__excepthook__(kind, error, trace)
    elif error.code is None or isinstance(error.code, int):
        code = error.code or 0
    else:
        print(error.code, file=sys.stderr)
    import atexit

    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):
            pass  # nobody reads any more
    os._exit(code & 0xFF)
