"""Where a launcher finds the text of the rank stub: a memfd, so that nothing need be writable or cleaned up."""

from __future__ import annotations

import os


def stub_source() -> str:
    """The stub's text, from the package wherever it lies (a directory, or the one-file launcher's archive)."""
    from importlib.util import find_spec

    spec = find_spec("musterpoint.supervise.rank_stub")
    loader = spec.loader if spec else None
    source = loader.get_source(spec.name) if spec and loader and hasattr(loader, "get_source") else None
    if source is None:
        raise FileNotFoundError("musterpoint's rank stub (supervise/rank_stub.py) is missing from the package")
    return str(source)


class StubText:
    """Written when :attr:`path` is first asked for; ``close`` removes it."""

    def __init__(self) -> None:
        self._fd = -1
        self._file = ""

    @property
    def path(self) -> str:
        if self._fd < 0 and not self._file:
            self._write(stub_source().encode())
        return self._file or f"/proc/{os.getpid()}/fd/{self._fd}"

    def _write(self, text: bytes) -> None:
        if hasattr(os, "memfd_create"):
            self._fd = os.memfd_create("muster-stub")
            os.write(self._fd, text)
            return
        import tempfile

        fd, self._file = tempfile.mkstemp(prefix="muster-stub-")
        with open(fd, "wb") as file:
            file.write(text)

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
        if self._file:
            os.unlink(self._file)
            self._file = ""
