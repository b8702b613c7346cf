"""The temporary directory that launchers of this host get, and its removal."""

from __future__ import annotations

import os
import shutil
from typing import Mapping

from musterpoint.base import temporary


class TemporaryDirectory:
    """Made when it is first asked for, below the user's TMPDIR; :meth:`close` removes it with all that is in it."""

    def __init__(self) -> None:
        self._path = ""

    def path(self, environ: Mapping[str, str]) -> str:
        """The path; empty where none can be made, so that launchers use their default."""
        place = temporary.place_of(environ) if not self._path else ""
        if place:
            path = os.path.join(place, f"muster-{os.urandom(4).hex()}")
            try:
                os.mkdir(path, 0o700)
            except OSError:
                return ""
            self._path = path
        return self._path

    def close(self) -> None:
        if self._path:
            remove(self._path)
            self._path = ""


def remove(path: str) -> None:
    """Removes a temporary directory with all that is in it, as far as that can be done."""
    shutil.rmtree(path, ignore_errors=True)
