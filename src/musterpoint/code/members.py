"""What is in an archive, member by member, whatever its kind; nothing of it is believed yet."""

import os
import stat
from typing import Any, BinaryIO, Callable, Iterator, NamedTuple, NoReturn

from musterpoint.errors import FetchError

_CHUNK = 1024 * 1024
_LONGEST_HEADER = 1024 * 1024
"""Bytes that the headers of one member may come to: names, attributes and maps of holes, which are kept in memory."""
_CONTENT = 2**63
"""As many bytes as there are."""


class Member(NamedTuple):
    """One entry of an archive. ``target`` is a link's, ``read`` opens a file's content.

    ``kind`` is ``directory``, ``file``, ``symlink``, ``hard link`` or a word for what can't be unpacked.
    """

    name: str
    kind: str
    mode: int = 0o644
    size: int = 0
    target: str = ""
    modified: float = 0.0
    read: Callable[[], BinaryIO] | None = None


def is_archive(path: str) -> bool:
    """Whether the file is a zip, or a tar, packed with gzip, bzip2, xz or not at all; by its first bytes."""
    with open(path, "rb") as file:
        head = file.read(512)
    return bool(packing_of(head)) or head[257:262] == b"ustar" or _is_old_tar(head)


class _Metered:
    """A stream that gives no more than ``most`` bytes, however small it was packed.

    :attr:`left` is how many of them may be asked for until it is set again.
    """

    def __init__(self, stream: Any, most: int, name: str) -> None:
        self._stream, self._most, self._name = stream, most, name
        self.left = _LONGEST_HEADER
        self.last = b""
        self.tell, self.close = stream.tell, stream.close

    def read(self, size: int = -1) -> bytes:
        if size < 0:
            raise ValueError("a header in it has a size below zero")
        if size > self.left:
            self.refuse_headers()
        self.left -= size
        data: bytes = self._stream.read(size)
        self._check(self._stream.tell())
        self.last = data
        return data

    def seek(self, position: int, whence: int = 0) -> int:
        self._check(position)
        at: int = self._stream.seek(position, whence)
        return at

    def refuse_headers(self) -> NoReturn:
        raise FetchError(
            f"{self._name} is refused: a member's headers in it come to more than {_LONGEST_HEADER:,} bytes"
        )

    def _check(self, position: int) -> None:
        if position > self._most:
            raise FetchError(f"{self._name} is refused: it unpacks to more than {self._most:,} bytes")


def tar_members(path: str, packing: str, name: str, most: int) -> Iterator[Member]:
    """The members of a tar, which may come to ``most`` bytes with its headers; ``packing`` is :func:`packing_of` it."""
    import tarfile

    with _open_packed(path, packing) as stream:
        metered: Any = _Metered(stream, most, name)
        with tarfile.open(fileobj=metered, mode="r:", encoding="utf-8", errors="surrogateescape") as tar:
            while (entry := tar.next()) is not None:
                metered.left = _CONTENT
                yield _tar_member(tar, entry)
                tar.members.clear()  # type: ignore[attr-defined]  # it would keep half a KiB for each
                metered.left = _LONGEST_HEADER
                if sum(len(key) + len(value) for key, value in tar.pax_headers.items()) > _LONGEST_HEADER:
                    metered.refuse_headers()  # those that hold for all members add up
            # tarfile takes a header that it can't read for the end
            if metered.last.strip(b"\0"):
                raise EOFError("a header in it can't be read")
        metered.left = _CONTENT
        try:
            while metered.read(_CHUNK):  # the packing's check sum stands at its end
                pass
        except OSError as error:
            if "Not a gzipped file" not in str(error):  # something behind the end, which gzip passes over, too
                raise


def _tar_member(tar: Any, entry: Any) -> Member:
    kind = "of an unknown kind"
    for question, answer in (
        (entry.isreg, "file"), (entry.isdir, "directory"), (entry.issym, "symlink"), (entry.islnk, "hard link"),
        (entry.isfifo, "a named pipe"), (entry.isdev, "a device"),
    ):  # fmt: skip
        if question():
            kind = answer
            break

    def content() -> BinaryIO:
        stream: BinaryIO = tar.extractfile(entry)
        return stream

    size = entry.size if kind == "file" else 0
    return Member(entry.name, kind, entry.mode, size, entry.linkname, float(entry.mtime), content)


def _open_packed(path: str, packing: str) -> Any:
    if packing == "gzip":
        import gzip

        return gzip.open(path, "rb")
    if packing == "bzip2":
        import bz2

        return bz2.open(path, "rb")
    if packing == "xz":
        import lzma

        return lzma.open(path, "rb")
    return open(path, "rb")


def zip_members(path: str) -> Iterator[Member]:
    """The members of a zip."""
    import time
    import zipfile

    with zipfile.ZipFile(path) as archive:
        for entry in archive.infolist():
            mode = entry.external_attr >> 16
            kind = _zip_kind(entry.filename, mode)
            if entry.flag_bits & 0x1:
                kind = "encrypted"
            target = ""
            if kind == "symlink":
                target = os.fsdecode(archive.read(entry)) if entry.file_size < 4096 else "/too long to be a link"
            try:
                modified = time.mktime((*entry.date_time, 0, 0, -1))
            except (ValueError, OverflowError):
                modified = 0.0

            def content(entry: Any = entry) -> BinaryIO:
                return archive.open(entry)  # type: ignore[return-value]

            size = entry.file_size if kind == "file" else 0
            mode = stat.S_IMODE(mode) or (0o755 if kind == "directory" else 0o644)
            yield Member(entry.filename, kind, mode, size, target, modified, content)


def _zip_kind(name: str, mode: int) -> str:
    if name.endswith("/") or stat.S_ISDIR(mode):
        return "directory"
    if stat.S_ISLNK(mode):
        return "symlink"
    return "file" if stat.S_ISREG(mode) or not stat.S_IFMT(mode) else "a device or named pipe"


def packing_of(head: bytes) -> str:
    """``gzip``, ``bzip2``, ``xz`` or ``zip``, by a file's first bytes; empty where it is none of them."""
    for magic, packing in ((b"\x1f\x8b", "gzip"), (b"BZh", "bzip2"), (b"\xfd7zXZ\0", "xz"), (b"PK\x03\x04", "zip"),
                           (b"PK\x05\x06", "zip")):  # fmt: skip
        if head.startswith(magic):
            return packing
    return ""


def _is_old_tar(head: bytes) -> bool:
    """A header of the oldest kind, which has no mark, but a check sum."""
    if len(head) < 512:
        return False
    try:
        told = int(head[148:156].split(b"\0")[0].strip() or b"x", 8)
    except ValueError:
        return False
    return told == sum(head[:148]) + 8 * 32 + sum(head[156:])
