"""Files in which the kernel and its drivers tell of devices: what isn't there reads as nothing."""

from __future__ import annotations

import os


def entries(folder: str) -> list[str]:
    """The names in ``folder``."""
    try:
        return os.listdir(folder)
    except OSError:
        return []


def read(path: str) -> str:
    """The text of the file at ``path``."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return ""
