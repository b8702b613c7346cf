"""How s3transfer reads the files that it uploads. Runs in a Python that has it, without musterpoint."""

from __future__ import annotations

from typing import Any, Callable


def file_access(utils: Any, name_of: Callable[[Any], str] = lambda file: "it") -> Any:
    """s3transfer's file access; a file that becomes shorter fails at once, instead of S3 waiting for the rest.

    ``utils``: ``s3transfer.utils``. ``name_of`` an open file is what the error calls it.
    """

    class Chunk(utils.ReadFileChunk):  # type: ignore[misc]
        def read(self, amount: Any = None) -> Any:
            data = super().read(amount)
            if not data and amount != 0 and self.tell() < len(self):
                raise OSError(f"{name_of(self._fileobj)} became shorter")
            return data

    class Files(utils.OSUtils):  # type: ignore[misc]
        def open_file_chunk_reader_from_fileobj(
            self, fileobj: Any, chunk_size: int, full_file_size: int, callbacks: Any, close_callbacks: Any = None
        ) -> Any:
            return Chunk(fileobj, chunk_size, full_file_size, callbacks, False, close_callbacks)

    return Files()
