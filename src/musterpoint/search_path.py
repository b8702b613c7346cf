"""Commands on PATH, as a shell finds them (``shutil.which`` costs an import of its own at start)."""

from __future__ import annotations

import os
from typing import Mapping


def find(command: str, environ: Mapping[str, str]) -> str:
    """The path of ``command`` on ``environ``'s PATH; empty where it isn't. A name with a slash isn't looked up."""
    if not command or "/" in command or "\0" in command:
        return ""
    for folder in environ.get("PATH", os.defpath).split(os.pathsep):
        candidate = os.path.join(folder or ".", command)
        if os.path.isfile(candidate) and os.access(candidate, os.X_OK):
            return candidate
    return ""
