"""Files that appear whole or not at all: whoever reads one meanwhile finds the one before."""

from __future__ import annotations

import contextlib
import os
import tempfile
from typing import Iterator


@contextlib.contextmanager
def whole(path: str) -> Iterator[str]:
    """A file to write, which then takes the place of ``path``; its folder is made.

    Raises:
        OSError: it can't be written there.
    """
    folder, name = os.path.split(os.path.abspath(path))
    os.makedirs(folder, exist_ok=True)
    own = tempfile.mkdtemp(prefix=f".{name}.", dir=folder)
    try:
        temporary = os.path.join(own, name)  # torch notes the name
        yield temporary
        os.replace(temporary, path)
    finally:
        with contextlib.suppress(OSError):
            os.unlink(os.path.join(own, name))
        os.rmdir(own)


def write_text(path: str, text: str) -> None:
    """Raises OSError if it can't be written."""
    with whole(path) as temporary, open(temporary, "w", encoding="utf-8") as file:
        file.write(text)
