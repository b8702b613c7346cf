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


def ask(pid: int, proc: str = "/proc") -> None:
    """Asks the process, if it is one that can answer."""
    folder = f"{proc}/{pid}/fd"
    try:
        links = [os.readlink(f"{folder}/{name}") for name in os.listdir(folder)]
        names = [link.removeprefix(RETURNS).partition(" ")[0] for link in links if link.startswith(RETURNS)]
        for name in filter(str.isdecimal, names):
            pipe = os.open(f"{folder}/{name}", os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            try:
                os.write(pipe, RAISED)
            finally:
                os.close(pipe)
    except OSError:  # it has ended, is another user's, or has been asked too often
        pass
