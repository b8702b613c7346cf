"""A file of JSON lines that is only added to, and whose writer may be killed at any moment."""

from __future__ import annotations

import contextlib
import json
import os
from typing import Any, Iterator


class Journal:
    """The file at ``path``. Used as :meth:`read` once, then :meth:`add`, by one thread at a time."""

    def __init__(self, path: str) -> None:
        self.path = path

    def read(self) -> Iterator[Any]:
        """What each line says. A last line that was cut off is removed, so that the next one doesn't continue it."""
        with contextlib.suppress(FileNotFoundError), open(self.path, "rb+") as file:
            end = 0
            for line in file:
                if not line.endswith(b"\n"):
                    break
                end += len(line)
                yield json.loads(line)
            file.truncate(end)

    def add(self, entry: Any) -> int:
        """Adds a line; how large the file is now."""
        with open(self.path, "ab") as file:
            file.write((json.dumps(entry) + "\n").encode())
            return file.tell()

    def lines(self) -> list[bytes]:
        """All lines as they stand."""
        with open(self.path, "rb") as file:
            return file.readlines()

    def replace(self, lines: list[bytes]) -> None:
        """Has these lines in the place of all, or where this is killed those that there were."""
        part = self.path + ".part"
        with open(part, "wb") as file:
            file.writelines(lines)
        os.replace(part, self.path)
