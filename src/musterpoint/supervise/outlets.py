"""Where output goes: our own stdout and stderr, a file for each process, with or without a prefix."""

from __future__ import annotations

import os
from typing import Callable, Collection

from musterpoint.errors import UsageError
from musterpoint.supervise.sink import Sink, log_file
from musterpoint.supervise.stream import Stream, prefix_of, same_file
from musterpoint.supervise.tail import Tail


class Outlets:
    """``warn`` is told of trouble with a file (or ``stdout``), once for each.

    Raises:
        UsageError: ``log_dir`` can't be made.
    """

    def __init__(
        self, out_fd: int, err_fd: int, prefix: str, host: str, log_ranks: Collection[int] | None, log_dir: str,
        warn: Callable[[OSError, str], None],
    ) -> None:  # fmt: skip
        self.shared = same_file(out_fd, err_fd)
        self.out = Sink(out_fd, lambda error: warn(error, "stdout"))
        self.err = self.out if self.shared else Sink(err_fd)
        self._prefix, self._host = prefix, host
        self._log_ranks, self._log_dir = log_ranks, log_dir
        self._warn = warn
        self._files: dict[str, Sink] = {}
        if log_dir:
            try:
                os.makedirs(log_dir, exist_ok=True)
            except OSError as error:
                raise UsageError(f"--log-dir {log_dir}: can't make the directory: {error.strerror}") from None

    def forwards(self, rank: int | None) -> bool:
        """Whether the output of a rank is shown; that of what isn't a rank always is."""
        return rank is None or self._log_ranks is None or rank in self._log_ranks

    def stream(self, fd: int, rank: int | None, name: str, label: str, kept: int) -> Stream:
        """The stream out of the pipe ``fd``; ``label`` is stdout, stderr or both, ``kept`` the size of its tail."""
        sink = self.err if label == "stderr" else self.out
        prefix = prefix_of(self._prefix, self._host, rank, name, label)
        return Stream(
            fd, sink if self.forwards(rank) else None, self._file(rank, name), prefix, Tail(kept), rank is not None
        )

    def _file(self, rank: int | None, name: str) -> Sink | None:
        if not self._log_dir:
            return None
        path = os.path.join(self._log_dir, (f"rank-{rank}" if rank is not None else name or "process") + ".log")
        if path not in self._files:
            self._files[path] = log_file(path, lambda error: self._warn(error, path))
        return self._files[path]

    def close(self) -> None:
        for file in self._files.values():
            file.close()
