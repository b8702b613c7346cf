"""Asks a rank that answers questions (``embedded.startup.stack_dumps``) whether its main thread has raised.

It answers at the control socket, as a rank does that tells of its exception; or not at all.
"""

from __future__ import annotations

import os

RETURNS = "/memfd:muster-returns-"
"""How the name of its memory file begins, as ``/proc/<pid>/fd`` has it; the number of the descriptor to write to
follows."""
RAISED = b"e"
"""The byte that asks."""


def ask(pid: int, proc: str = "/proc") -> bool:
    """Asks the process; returns whether it is one that can answer."""
    folder = f"{proc}/{pid}/fd"
    try:
        for name in os.listdir(folder):
            link = os.readlink(f"{folder}/{name}")
            if link.startswith(RETURNS):
                number = link.removeprefix(RETURNS).partition(" ")[0]
                return number.isdecimal() and _write(f"{folder}/{number}")
    except OSError:  # it has ended, or is another user's
        pass
    return False


def _write(path: str) -> bool:
    pipe = os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        return os.write(pipe, RAISED) == 1
    finally:
        os.close(pipe)
