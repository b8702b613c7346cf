"""Reads a packed file's bytes, forward only. The memory it takes is bounded, whatever the file unpacks to."""

import bz2
import gzip
import lzma
import os
from typing import Any, Callable, Iterator, Literal, NoReturn

from musterpoint.base.errors import FetchError

CHUNK = 1024 * 1024
XZ_MEMORY = 80 * 1024**2
"""Bytes that unpacking an xz may take: its strongest preset, -9, needs 65 MiB."""
_XZ = b"\xfd7zXZ\0"
_BEHIND = 64 * 1024**2
"""Bytes that may follow the archive's end. A tar is padded to its blocks, usually 10 KiB."""


Packing = Literal["gzip", "bzip2", "xz", "zip", ""]
_MAGIC: tuple[tuple[bytes, Packing], ...] = (
    (b"\x1f\x8b", "gzip"),
    (b"BZh", "bzip2"),
    (_XZ, "xz"),
    (b"PK\x03\x04", "zip"),
    (b"PK\x05\x06", "zip"),
)


def packing_of(head: bytes) -> Packing:
    """How a file is packed, by its first bytes; empty where it isn't."""
    return next((packing for magic, packing in _MAGIC if head.startswith(magic)), "")


class Packed:
    """The unpacked bytes of the file at ``path`` (``name`` in messages): at most ``most`` of them.

    ``poll`` is called between pieces of work and may raise.
    """

    def __init__(self, path: str, packing: Packing, name: str, most: int, poll: Callable[[], None]) -> None:
        self.at = 0
        self._name, self._most, self._poll = name, most, poll
        self._file = _File(path, poll)
        self._size = os.path.getsize(path)
        self._plain = not packing
        self._stream: Any = _unpacked(self._file, packing, name)

    def __enter__(self) -> "Packed":
        return self

    def __exit__(self, *_: Any) -> None:
        self._file.close()

    def read(self, size: int) -> bytes:
        """The next ``size`` bytes, fewer only at the end. Meant for small pieces."""
        self._poll()
        data: bytes = self._stream.read(min(size, self._most - self.at + 1))
        self.at += len(data)
        if self.at > self._most:
            self.refuse(f"it unpacks to more than {self._most:,} bytes")
        return data

    def pieces(self, size: int) -> Iterator[bytes]:
        """The next ``size`` bytes in pieces.

        Raises:
            EOFError: there are fewer.
        """
        while size:
            piece = self.read(min(CHUNK, size))
            if not piece:
                raise EOFError(f"{size:,} bytes are lacking at its end")
            size -= len(piece)
            yield piece

    def skip(self, size: int) -> None:
        """Skips the next ``size`` bytes. Raises as :meth:`pieces` does."""
        if self._plain:
            if self.at + size > self._size:
                raise EOFError(f"{self.at + size - self._size:,} bytes are lacking at its end")
            self.at += size
            self._file.seek(self.at)
            return
        for _ in self.pieces(size):
            pass

    def finish(self) -> None:
        """Reads to the end of the file, which has the packing's check sum."""
        end = self.at + _BEHIND
        try:
            while self.read(CHUNK):
                if self.at > end:
                    self.refuse(f"it has more than {_BEHIND:,} bytes behind its end")
        except OSError as error:
            if "Not a gzipped file" not in str(error):  # other bytes after the end: gzip ignores them too
                raise

    def refuse(self, why: str) -> NoReturn:
        raise FetchError(f"{self._name} is refused: {why}")


class _File:
    """A file that polls at every read: a large part of it may unpack to nothing."""

    def __init__(self, path: str, poll: Callable[[], None]) -> None:
        self._poll = poll
        self._file = open(path, "rb")  # noqa: SIM115
        self.seek, self.close = self._file.seek, self._file.close

    def read(self, size: int = -1) -> bytes:
        self._poll()
        return self._file.read(size)


def _unpacked(file: Any, packing: Packing, name: str) -> Any:
    if packing == "gzip":
        return gzip.GzipFile(fileobj=file, mode="rb")
    if packing == "bzip2":
        return bz2.BZ2File(file)
    return _Xz(file, name) if packing == "xz" else file


class _Xz:
    """Unpacks xz with limited memory. ``lzma``'s own reader takes as much memory as the archive asks for."""

    def __init__(self, file: Any, name: str) -> None:
        self._file, self._name = file, name
        self._decompressor: Any = None
        self._rest = b""
        self._over = not self._begins()

    def read(self, size: int) -> bytes:
        found = bytearray()
        while len(found) < size and not self._over:
            if self._decompressor is None:
                self._decompressor = lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=XZ_MEMORY)
            data = b""
            if self._decompressor.needs_input:
                data, self._rest = self._rest or self._file.read(64 * 1024), b""
                if not data:
                    raise EOFError("the xz is cut short")
            try:
                found += self._decompressor.decompress(data, size - len(found))
            except lzma.LZMAError as error:
                if "limit" in str(error):
                    raise FetchError(
                        f"{self._name} is refused: to unpack its xz takes more than {XZ_MEMORY // 1024**2} MiB of "
                        "memory; expected a dictionary of 64 MiB (`xz -9`) or less"
                    ) from None
                raise
            if self._decompressor.eof:
                self._rest, self._decompressor = self._decompressor.unused_data, None
                self._over = not self._begins()
        return bytes(found)

    def _begins(self) -> bool:
        """Whether another xz stream follows, after padding. Other bytes end the file, as with gzip."""
        self._rest = self._rest.lstrip(b"\0")
        while len(self._rest) < len(_XZ) and (more := self._file.read(64 * 1024)):
            self._rest = (self._rest + more).lstrip(b"\0")
        return self._rest.startswith(_XZ)
