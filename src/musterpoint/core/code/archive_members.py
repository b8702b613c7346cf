"""The members of an archive: what all kinds of archives have in common, and how a zip's are read.

Members are as the archive gives them; nothing is checked yet.
"""

import io
import os
import stat
import time
import zipfile
from typing import Any, Callable, Iterator, Literal

from musterpoint.base.errors import FetchError
from musterpoint.base.records import NamedTuple
from musterpoint.core.code.packed import CHUNK

Kind = Literal["directory", "file", "symlink", "hard link", "other"]


class ArchiveMember(NamedTuple):
    """One entry of an archive.

    ``mode``: its permissions.
    ``size``: bytes of a file's content.
    ``target``: what a link leads to.
    ``modified``: seconds since 1970; 0 where that isn't known.
    ``pieces``: reads a file's content.
    ``other``: for messages: what a member of the kind ``other`` is. It can't be unpacked.
    """

    name: str
    kind: Kind
    mode: int = 0o644
    size: int = 0
    target: str = ""
    modified: float = 0.0
    pieces: Callable[[], Iterator[bytes]] = lambda: iter(())
    other: str = ""


ZIP_MEMBERS = 100_000
"""Members of a zip at most: ``zipfile`` keeps about a KiB for each."""
_DIRECTORY = 16 * 1024**2
"""Bytes of a zip's directory at most: it is read in one piece."""
_NAMES = 20 * 1024**2
"""Bytes of memory for its names at most: one character outside Latin-1 makes a name up to four times as large."""
_LONGEST_TARGET = 4096


def zip_members(path: str, name: str) -> Iterator[ArchiveMember]:
    """The members of the zip at ``path``, called ``name`` in messages."""
    with _Zip(path, name) as file, zipfile.ZipFile(file) as archive:
        file.opened = True
        for entry in archive.infolist():
            mode = entry.external_attr >> 16
            kind, other = _zip_kind(entry.filename, mode), ""
            if entry.flag_bits & 0x1:
                kind, other = "other", "encrypted"
            elif entry.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
                method = f"packed by zip's method {entry.compress_type}"
                kind, other = "other", f"{method}; expected 8 (deflate) or 0 (nothing)"
            elif kind == "other":
                other = "a device or named pipe"
            target = ""
            if kind == "symlink":
                with archive.open(entry) as content:
                    target = os.fsdecode(content.read(_LONGEST_TARGET))
            try:
                modified = time.mktime((*entry.date_time, 0, 0, -1))
            except (ValueError, OverflowError):
                modified = 0.0

            def pieces(entry: Any = entry) -> Iterator[bytes]:
                left = entry.file_size
                with archive.open(entry) as content:
                    # asked for more, zipfile would unpack more
                    while piece := content.read(min(CHUNK, left)):
                        left -= len(piece)
                        yield piece

            size = entry.file_size if kind == "file" else 0
            mode = stat.S_IMODE(mode) or (0o755 if kind == "directory" else 0o644)
            # zipfile's own name ends where a NUL is
            yield ArchiveMember(entry.orig_filename, kind, mode, size, target, modified, pieces, other)


class _Zip(io.FileIO):
    """A zip that refuses large reads until it is ``opened``: the size of its directory is only what the zip claims."""

    opened = False

    def __init__(self, path: str, name: str) -> None:
        super().__init__(path)
        self._label = name

    def read(self, size: "int | None" = -1) -> bytes:
        if self.opened:
            return super().read(size) or b""
        left = os.fstat(self.fileno()).st_size - self.tell()
        wanted = left if size is None or size < 0 else min(size, left)
        if wanted > _DIRECTORY:
            raise FetchError(
                f"{self._label} is refused: its directory has {wanted:,} bytes, more than {_DIRECTORY:,}; expected "
                "fewer members, or a .tar.gz"
            )
        data = super().read(wanted) or b""
        if (found := data.count(b"PK\1\2")) > ZIP_MEMBERS:
            raise FetchError(
                f"{self._label} is refused: its directory has {found:,} members, more than {ZIP_MEMBERS:,}; expected "
                "fewer, or a .tar.gz"
            )
        if (size := _size_of_names(data)) > _NAMES:
            raise FetchError(
                f"{self._label} is refused: the names in its directory take {size:,} bytes of memory, more than "
                f"{_NAMES:,}; expected fewer members, or a .tar.gz"
            )
        return data

    def seek(self, position: int, whence: int = 0) -> int:
        if position < 0 and not whence:
            raise EOFError("a member of it is before its beginning")
        return super().seek(position, whence)


def _size_of_names(directory: bytes) -> int:
    """Bytes that the names in a zip's directory may take, decoded."""
    size = at = 0
    while directory.startswith(b"PK\1\2", at):
        name, extra, comment = (int.from_bytes(directory[at + i : at + i + 2], "little") for i in (28, 30, 32))
        size += name if directory[at + 46 : at + 46 + name].isascii() else 4 * name
        at += 46 + name + extra + comment
    return size


def _zip_kind(name: str, mode: int) -> Kind:
    if name.endswith("/") or stat.S_ISDIR(mode):
        return "directory"
    if stat.S_ISLNK(mode):
        return "symlink"
    return "file" if stat.S_ISREG(mode) or not stat.S_IFMT(mode) else "other"
