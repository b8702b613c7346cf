"""What the user's Python has: asked of a child of it, since it need not be the one that runs us."""

from __future__ import annotations

from typing import Mapping

from musterpoint import asking
from musterpoint.asking import Ask

_HAS = """
import importlib.util, sys
try:
    found = importlib.util.find_spec(sys.argv[1])
except (ImportError, ValueError, AttributeError):
    found = None
sys.exit(0 if found else 3)
"""


def has_module(interpreter: str, name: str, environ: Mapping[str, str], cwd: str, how: Ask = asking.ask) -> bool:
    """Whether ``interpreter``, started in ``cwd`` with ``environ``, finds the module ``name``. Nothing is imported.

    A dotted name imports its parents. False where the interpreter can't be started.
    """
    return ask(interpreter, _HAS, name, environ, cwd, how)[0] == 0


def ask(
    interpreter: str, script: str, word: str, environ: Mapping[str, str], cwd: str, how: Ask = asking.ask
) -> tuple[int, str]:
    """Exit status and stdout of ``script``, run by ``interpreter`` with one argument; -1 where it can't be run."""
    try:
        answer = how([interpreter, "-c", script, word], environ, cwd, False)
    except (OSError, ValueError):
        return -1, ""
    return -1 if answer.status is None else answer.status, answer.text
