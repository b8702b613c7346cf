"""Several files that take their places together: a job that dies meanwhile leaves all of the old, or all of the new.

Every rank writes into a hidden folder beside the files' places. When the last one is there the folder gets another
name, and from that moment on its files count: whoever reads one before it has been moved finds it there.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from typing import Callable, Iterator

NEW, SAVED = ".new", ".saved"
"""How the folder's name ends, while files are written and once they count."""


class Staging:
    """The files of one checkpoint.

    Args:
        folder: where they belong.
        label: whose files they are, where the folder has those of several checkpoints.
    """

    def __init__(self, folder: str, label: str = "") -> None:
        self._folder = folder
        name = f".{label}" if label else ""
        self._new, self._saved = (os.path.join(folder, f"{name}{suffix}") for suffix in (NEW, SAVED))

    def found(self, path: str) -> str:
        """Where the file that belongs to ``path`` is now; ``path`` itself where there is none."""
        saved = os.path.join(self._saved, os.path.basename(path))
        return saved if os.path.exists(saved) else path

    def begun(self) -> bool:
        """Whether a job that died has left something."""
        return os.path.isdir(self._new) or os.path.isdir(self._saved)

    def clear(self) -> None:
        """Ends what a job that died has begun: files that count are moved, others removed. Several ranks may do it."""
        with contextlib.suppress(FileNotFoundError):
            for name in os.listdir(self._saved):
                with contextlib.suppress(FileNotFoundError):
                    self._move(name)
        self.remove()

    def remove(self) -> None:
        """Removes what isn't in its place."""
        for folder in (self._new, self._saved):
            shutil.rmtree(folder, ignore_errors=True)

    @contextlib.contextmanager
    def writing(self, meet: Callable[[], None]) -> Iterator[Callable[[str], str]]:
        """Gives a function that says where to write the file of a path; at the end all are in their places.

        Args:
            meet: returns when all ranks that write have come there.

        Raises:
            OSError: a file can't be moved.
        """
        names: list[str] = []

        def stage(path: str) -> str:
            os.makedirs(self._new, exist_ok=True)
            names.append(os.path.basename(path))
            return os.path.join(self._new, names[-1])

        self.clear()
        meet()
        try:
            yield stage
        except BaseException:
            for name in names:
                with contextlib.suppress(OSError):
                    os.unlink(os.path.join(self._new, name))
            with contextlib.suppress(OSError):
                os.rmdir(self._new)  # the last one
            raise
        meet()
        with contextlib.suppress(FileNotFoundError):  # another rank was first
            os.rename(self._new, self._saved)
        for name in names:
            self._move(name)
        meet()
        with contextlib.suppress(FileNotFoundError):
            os.rmdir(self._saved)

    def _move(self, name: str) -> None:
        os.replace(os.path.join(self._saved, name), os.path.join(self._folder, name))
