"""Files about a failure that are kept for people, below the job's output data: ``muster/<host>/<name>``."""

from __future__ import annotations

import os

MOST_BYTES = 4 << 20
"""Of one file; the end of a longer text is cut off."""
_DIRECTORY = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0) | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)


def keep(directory: str, host: str, name: str, content: str | bytes) -> str:
    """Writes ``content`` to ``<directory>/muster/<host>/<name>`` (replaced if it is there) and returns that path.

    Links that the user's program has put there aren't followed.

    Raises:
        OSError: it can't be written.
    """
    os.makedirs(directory, exist_ok=True)
    folder = os.open(directory, os.O_RDONLY | getattr(os, "O_CLOEXEC", 0))
    try:
        for part in ("muster", host):
            try:
                os.mkdir(part, dir_fd=folder)
            except FileExistsError:
                pass
            below = os.open(part, _DIRECTORY, dir_fd=folder)
            os.close(folder)
            folder = below
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)
        with open(os.open(name, flags, 0o644, dir_fd=folder), "wb") as file:
            data = content.encode("utf-8", "replace") if isinstance(content, str) else content
            file.write(data[:MOST_BYTES])
    finally:
        os.close(folder)
    return os.path.join(directory, "muster", host, name)
