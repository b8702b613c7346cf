"""Lets breakpoints do nothing in the ranks beside the one that a person debugs (``muster local --debug``).

They have no terminal: pdb would read the end of their input, and end them. Old Pythons load this file too: no newer
syntax.
"""

import os
import sys
from importlib import import_module


def has_terminal():  # type: ignore[no-untyped-def]
    try:
        return os.isatty(0)
    except OSError:
        return False


def nothing(*args, **kwargs):  # type: ignore[no-untyped-def]
    """In the place of a debugger."""


def patch(pdb):  # type: ignore[no-untyped-def]
    """For a program that calls pdb itself."""
    for name in ("set_trace", "set_trace_async", "post_mortem", "pm"):
        if hasattr(pdb, name):
            setattr(pdb, name, nothing)


if not has_terminal():  # type: ignore[no-untyped-call]
    sys.breakpointhook = nothing
    import_module("muster_after_import").after_import("pdb", patch)
