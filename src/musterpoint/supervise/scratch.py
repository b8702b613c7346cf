"""A private folder for what launchers leave lying about: session directories of Open MPI, log folders of torchrun."""

from __future__ import annotations

import os
from typing import Mapping


class Scratch:
    """Made when it is first asked for, below the user's TMPDIR; :meth:`close` removes it with all that is in it."""

    def __init__(self) -> None:
        self._path = ""

    def path(self, environ: Mapping[str, str]) -> str:
        """Empty where none can be made: launchers then use what they find."""
        if not self._path:
            path = os.path.join(environ.get("TMPDIR") or "/tmp", f"muster-{os.urandom(4).hex()}")
            try:
                os.mkdir(path, 0o700)
            except OSError:
                return ""
            self._path = path
        return self._path

    def close(self) -> None:
        if self._path:
            import shutil

            shutil.rmtree(self._path, ignore_errors=True)
            self._path = ""
