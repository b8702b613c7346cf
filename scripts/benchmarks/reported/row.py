"""A failure as users of other tools have reported it, made into a small program."""

from __future__ import annotations

import textwrap
from typing import NamedTuple

RAISES = "raise ValueError('batch 7 is empty')"
EMPTY = "ValueError: batch 7 is empty"


class Reported(NamedTuple):
    """``name``; ``about`` as a phrase; ``source``: the report, as ``owner/repository#number``; empty: none is known.

    ``body``: the program behind the preamble of the fault matrix. There ``meet()`` returns when all ranks work,
    ``VICTIM`` is true in the one that fails, ``strike()`` says that it does so now, ``rest()`` never returns, and
    ``join()`` and ``collective()`` are those of the ranks' framework.
    ``code``: the exit code of the rank that fails. ``error``: a regular expression of what the user must read; empty:
    the code is all that there is.
    ``every``: whether all ranks fail alike, so that each of them is the right one.
    ``at_exit``: whether it fails while the interpreter exits.
    """

    name: str
    about: str
    source: str
    body: str
    code: int
    error: str
    every: bool = False
    at_exit: bool = False


def fails(body: str) -> str:
    """The victim does ``body``, the others have nothing to do with it."""
    return f"meet()\nif VICTIM:\n    strike()\n{_indented(body)}rest()\n"


def waits(body: str) -> str:
    """The victim does ``body`` while the others wait for it in a collective."""
    return f"join()\nmeet()\nif VICTIM:\n    strike()\n{_indented(body)}while True:\n    collective()\n"


def whole(body: str) -> str:
    return textwrap.dedent(body).lstrip("\n")


def _indented(body: str) -> str:
    return textwrap.indent(whole(body).rstrip() + "\n", "    ")
