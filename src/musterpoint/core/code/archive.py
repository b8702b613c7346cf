"""Unpacks the user's archive into one new directory, by the standard library's readers.

A member that could write or lead elsewhere is left out and named, as sagemaker-training leaves it out. The check is
musterpoint's own: the filters of :mod:`tarfile` are younger than some Pythons in images, and a zip has none.
"""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import os
import stat
import struct
import tarfile
import time
import zipfile
import zlib
from typing import Any, BinaryIO, Callable, Iterator, Literal

from musterpoint.base.below import Below, ForeignName, below, parts_of
from musterpoint.base.errors import FetchError
from musterpoint.base.records import NamedTuple

Kind = Literal["directory", "file", "symlink", "hard link"]
_KINDS: dict[bytes, Kind] = {
    **dict.fromkeys(tarfile.REGULAR_TYPES, "file"),
    tarfile.DIRTYPE: "directory",
    tarfile.SYMTYPE: "symlink",
    tarfile.LNKTYPE: "hard link",
}


class Limits(NamedTuple):
    """How large an archive may be: ``members``, and ``size`` in bytes unpacked.

    Above ``free`` bytes it may also be at most ``ratio`` times its packed size. Source code gets 3 to 20 times
    smaller, an archive made to fill disks 1,000 times.
    """

    members: int = 500_000
    size: int = 32 * 1024**3
    free: int = 1024**3
    ratio: int = 200


LIMITS = Limits()


class Unpacked(NamedTuple):
    """How many members came out of an archive, their bytes together, how many were left out, and why the first were."""

    members: int
    size: int
    left_out: int = 0
    why: tuple[str, ...] = ()


class ArchiveMember(NamedTuple):
    """One entry of an archive, as the archive gives it. ``target``: of a link. ``content``: opens a file's bytes."""

    name: str
    kind: Kind | None
    mode: int = 0o644
    size: int = 0
    target: str = ""
    modified: float = 0.0
    content: Callable[[], Any] = lambda: None


_MAGIC: tuple[tuple[bytes, Callable[[str], Any]], ...] = (
    (b"\x1f\x8b", gzip.open),
    (b"BZh", bz2.open),
    (b"\xfd7zXZ\0", lzma.open),
)
_ZIP = (b"PK\x03\x04", b"PK\x05\x06")
_EXTENDED = (
    tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK, tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.SOLARIS_XHDTYPE,
)  # fmt: skip
"""Kinds of headers that tarfile reads whole."""
_CHUNK = 1024 * 1024
_HEADERS = 5120
"""Bytes of a tar that one small member's headers and padding may take."""
_LONGEST_HEADER = 1024 * 1024
"""Bytes of one extended header: a member's names and attributes."""
_BEHIND = 64 * 1024**2
"""Bytes that may follow the archive's end. A tar is padded to its blocks, usually 10 KiB."""
_MOST_EMPTY = 8
"""Reads at the end of a tar; the last member, the end's blocks and what is behind it take a few."""
_HOPS = 40
"""Links that Linux follows on the way to a file."""
_NAMED = 5
"""Members that are named of those that were left out."""
_BROKEN = (
    EOFError, UnicodeError, ValueError, OverflowError, struct.error, zlib.error, lzma.LZMAError, zipfile.BadZipFile,
    NotImplementedError, RuntimeError, MemoryError, tarfile.TarError, OSError,
)  # fmt: skip


def is_archive(path: str) -> bool:
    """Whether the file is a zip, or a tar, packed with gzip, bzip2, xz or not at all; by its first bytes."""
    with open(path, "rb") as file:
        head = file.read(tarfile.BLOCKSIZE)
    if head.startswith((*_ZIP, *(magic for magic, _ in _MAGIC))) or head[257:262] == b"ustar":
        return True
    try:
        tarfile.TarInfo.frombuf(head, "utf-8", "surrogateescape")
    except tarfile.TarError:
        return False
    return True


def unpack(
    path: str, folder: str, name: str, poll: Callable[[], None] = lambda: None, limits: Limits = LIMITS
) -> Unpacked:
    """Unpacks the archive at ``path`` (called ``name`` in messages) into ``folder``, which is new and empty.

    ``poll`` is called between pieces of work and may raise. Owners, set-user-ID bits and the right of others to write
    are dropped. Of a file that comes twice the last one is kept, as ``tar`` does.

    Raises:
        FetchError: the archive is broken or too large.
    """
    with open(path, "rb") as file:
        head = file.read(8)
    most = min(limits.size, max(limits.free, limits.ratio * os.path.getsize(path)))
    tree = _Tree(folder, name, most, limits.members, poll)
    try:
        if head.startswith(_ZIP):
            with zipfile.ZipFile(path) as zipped:
                for entry in zipped.infolist():
                    tree.add(_zip_member(zipped, entry))
        else:
            opened = next((opened for magic, opened in _MAGIC if head.startswith(magic)), io.FileIO)
            with opened(path) as stream:
                source = _Source(stream, name, most + _HEADERS * limits.members, poll)
                for member in _tar_members(source):
                    tree.add(member)
                source.finish()
    except FetchError:
        raise
    except _BROKEN as error:
        raise FetchError(f"{name} can't be unpacked: {_what_is_broken(error)}") from None
    finally:
        tree.drop_links_that_lead_out()
    return Unpacked(tree.members - tree.left_out, tree.size, tree.left_out, tuple(tree.why))


def said_of(found: Unpacked, name: str) -> str:
    """What was left out, in one sentence; empty: nothing was."""
    if not found.left_out:
        return ""
    more = f"; and {found.left_out - len(found.why):,} more" if found.left_out > len(found.why) else ""
    return f"{name}: {found.left_out:,} of its members are left out: {'; '.join(found.why)}{more}"


class _Source:
    """The unpacked bytes of a tar: at most ``most`` of them."""

    def __init__(self, stream: BinaryIO, name: str, most: int, poll: Callable[[], None]) -> None:
        self._stream, self._name, self._most, self._poll = stream, name, most, poll
        self._at = self._empty = 0

    def read(self, size: int) -> bytes:
        self._poll()
        data = self._stream.read(size)
        self._at += len(data)
        if self._at > self._most:
            raise FetchError(f"{self._name} is refused: it unpacks to more than {self._most:,} bytes")
        self._empty += not data
        if self._empty > _MOST_EMPTY:  # tarfile skips a member of any size that a header claims, piece by piece
            raise EOFError("it ends in a member")
        return data

    def finish(self) -> None:
        """Reads to the end of the file, which has the packing's check sum."""
        end = self._at + _BEHIND
        try:
            while self.read(_CHUNK):
                if self._at > end:
                    raise FetchError(f"{self._name} is refused: it has more than {_BEHIND:,} bytes behind its end")
        except OSError as error:
            if "Not a gzipped file" not in str(error):  # other bytes after the end: gzip ignores them too
                raise


class _TarInfo(tarfile.TarInfo):
    """A member whose damaged header is an error; tarfile takes it for the end of the archive."""

    @classmethod
    def fromtarfile(cls, tar: tarfile.TarFile) -> tarfile.TarInfo:  # type: ignore[override]
        try:
            return super().fromtarfile(tar)
        except (tarfile.EOFHeaderError, tarfile.EmptyHeaderError):  # type: ignore[attr-defined]
            raise
        except tarfile.HeaderError as error:
            raise tarfile.ReadError(str(error)) from None

    def _proc_member(self, tar: tarfile.TarFile) -> tarfile.TarInfo:
        if self.type in _EXTENDED and not 0 <= self.size <= _LONGEST_HEADER:
            raise tarfile.ReadError(f"a header in it has {self.size:,} bytes")
        found: tarfile.TarInfo = super()._proc_member(tar)  # type: ignore[misc]
        return found


def _tar_members(source: Any) -> Iterator[ArchiveMember]:
    """A member's content can be read only before the next member is asked for."""
    with tarfile.open(fileobj=source, mode="r|", tarinfo=_TarInfo, errors="surrogateescape") as tar:
        for info in tar:
            setattr(tar, "members", [])  # noqa: B010  # it would keep them all; typeshed does not know the list

            def content(info: tarfile.TarInfo = info) -> Any:
                return tar.extractfile(info)

            size = info.size if info.isreg() else 0
            kind = _KINDS.get(info.type)
            yield ArchiveMember(info.name, kind, info.mode, size, info.linkname, info.mtime, content)


def _zip_member(zipped: zipfile.ZipFile, entry: zipfile.ZipInfo) -> ArchiveMember:
    mode = entry.external_attr >> 16
    kind: Kind | None = None
    if entry.flag_bits & 1:
        pass  # encrypted
    elif entry.filename.endswith("/") or stat.S_ISDIR(mode):
        kind = "directory"
    elif stat.S_ISLNK(mode):
        kind = "symlink"
    elif stat.S_ISREG(mode) or not stat.S_IFMT(mode):
        kind = "file"
    target = ""
    if kind == "symlink":
        with zipped.open(entry) as content:
            target = os.fsdecode(content.read(4096))
    try:
        modified = time.mktime((*entry.date_time, 0, 0, -1))
    except (ValueError, OverflowError):
        modified = 0.0
    size = entry.file_size if kind == "file" else 0
    return ArchiveMember(entry.filename, kind, mode or 0o644, size, target, modified, lambda: zipped.open(entry))


class _LeftOut(Exception):
    """A member isn't unpacked; the text says why."""


class _Tree:
    """The directory while it is filled. Nothing in it is written through a link."""

    def __init__(self, folder: str, name: str, most: int, most_members: int, poll: Callable[[], None]) -> None:
        self.members = self.size = self.left_out = 0
        self.why: list[str] = []
        self._folder, self._name, self._poll = folder, name, poll
        self._most, self._most_members = most, most_members
        self._tree = Below(folder)
        self._links: dict[str, str] = {}
        disk = os.statvfs(folder)
        self._room = disk.f_bavail * disk.f_frsize

    def add(self, member: ArchiveMember) -> None:
        self._poll()
        self.members += 1
        if self.members > self._most_members:
            raise FetchError(f"{self._name} is refused: it has more than {self._most_members:,} members")
        self._count(member)
        try:
            path = _path_of(member)
            if path:
                self._put(member, path)
        except (_LeftOut, ForeignName) as error:
            self._leave_out(member.name, error)

    def _leave_out(self, name: str, why: object) -> None:
        self.left_out += 1
        if len(self.why) < _NAMED:
            self.why.append(f"{shown(name)}: {why}")

    def _count(self, member: ArchiveMember) -> None:
        if member.size < 0:
            raise tarfile.ReadError(f"the size of {shown(member.name)} is {member.size}")
        self.size += member.size
        if self.size > min(self._most, self._room):
            allowed = f"more than the {self._most:,} it may have"
            if self.size <= self._most:
                allowed = f"and the disk of {self._folder} has room for {self._room:,}"
            raise FetchError(
                f"{self._name} is refused: with its member {shown(member.name)} it unpacks to {self.size:,} bytes, "
                f"{allowed}"
            )

    def _put(self, member: ArchiveMember, path: str) -> None:
        parts = path.split("/")
        if any("/".join(parts[:at]) in self._links for at in range(1, len(parts))):
            raise _LeftOut("it lies behind a link")
        place = below(self._folder, path)
        try:
            if member.kind == "directory":
                if path in self._links:
                    raise _LeftOut("a link has its name")
                os.makedirs(place, exist_ok=True)
                os.chmod(place, 0o700 | member.mode & 0o055)
                return
            os.makedirs(os.path.dirname(place), exist_ok=True)
            if member.kind == "hard link":
                self._link(member, place)
                return
            if os.path.lexists(place):
                os.unlink(place)
                self._links.pop(path, None)
            if member.kind == "symlink":
                if os.path.isabs(member.target) or "\0" in member.target or not member.target:
                    raise _LeftOut(f"it is a link to {shown(member.target)}, which leads out of the code")
                os.symlink(member.target, place)
                self._links[path] = member.target
            else:
                self._write(member, place)
        except (FileExistsError, NotADirectoryError, IsADirectoryError):
            raise _LeftOut("a member of another kind has its name, or a folder's on the way to it") from None
        except OSError as error:
            if error.errno is None:  # not the file system's: broken packing
                raise
            raise FetchError(f"{self._name}: {shown(member.name)} can't be written: {error.strerror}") from None

    def _link(self, member: ArchiveMember, place: str) -> None:
        source = _path_of(member._replace(name=member.target))
        facts = self._tree.facts(source) if source else None
        if facts is None or not stat.S_ISREG(facts.st_mode):
            raise _LeftOut(f"it is a link to {shown(member.target)}, which isn't a file before it")
        if place != below(self._folder, source):
            if os.path.lexists(place):
                os.unlink(place)
            os.link(below(self._folder, source), place)

    def _write(self, member: ArchiveMember, place: str) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0)
        with member.content() as content, open(os.open(place, flags, 0o600), "wb") as out:
            left = member.size
            while left and (piece := content.read(min(_CHUNK, left))):
                self._poll()
                left -= len(piece)
                out.write(piece)
            if left:
                raise EOFError(f"{shown(member.name)} is cut short by {left:,} bytes")
            content.read(1)  # a zip compares the check sum at the end
        os.chmod(place, 0o600 | member.mode & 0o755)
        if 0 < member.modified < 2**33:
            os.utime(place, (member.modified, member.modified))

    def drop_links_that_lead_out(self) -> None:
        """Removes symbolic links that lead out of the directory, through whatever other links."""
        for path in list(self._links):
            self._poll()
            if self._leads_out(path):
                os.unlink(below(self._folder, path))
                self._leave_out(path, "it is a link that leads out of the code")
                del self._links[path]

    def _leads_out(self, path: str) -> bool:
        """Whether a symbolic link leads out of the tree, all other links followed. More links on the way than Linux
        follows lead nowhere. A part that doesn't exist counts as a directory.
        """
        hops, at, ahead = 0, list[str](), path.split("/")[::-1]
        while ahead:
            part = ahead.pop()
            if part == "..":
                if not at:
                    return True
                at.pop()
            elif part not in ("", "."):
                at.append(part)
                target = self._links.get("/".join(at))
                if target is not None:
                    if (hops := hops + 1) > _HOPS:
                        return False
                    at.pop()
                    ahead += target.split("/")[::-1]
        return False


def _path_of(member: ArchiveMember) -> str:
    """The member's path in the tree, without parts that mean nothing, such as ``./``; empty for the tree itself.

    Windows' separators count too.

    Raises:
        _LeftOut, ForeignName: it has none there.
    """
    parts = member.name.replace("\\", "/").split("/")
    is_root = parts.count("") == len(parts)  # nothing but the root, which the SDK's own packing writes
    has_drive = len(parts) > 1 and len(parts[0]) == 2 and parts[0].endswith(":")
    if (member.name.startswith(("/", "\\")) or has_drive) and not is_root:
        raise _LeftOut(f"the path {shown(member.name)} is absolute")
    if ".." in parts:
        raise _LeftOut(f"the path {shown(member.name)} leads out of the code")
    if member.kind is None:
        raise _LeftOut("it is a device, a named pipe, encrypted or of an unknown kind")
    parts = [part for part in parts if part not in ("", ".")]
    if not parts and member.kind != "directory":
        raise _LeftOut("it has no name of its own")
    return "/".join(parts_of("/".join(parts))) if parts else ""


def _what_is_broken(error: BaseException) -> str:
    words = (error.strerror if isinstance(error, OSError) else "") or str(error) or type(error).__name__
    words = words if len(words) <= 200 else words[:200] + "…"  # it may quote names from the zip
    # "CRC check failed" keeps its capitals
    return "it is broken or cut short: " + (words if words[:2].isupper() else words[:1].lower() + words[1:])


def shown(name: str) -> str:
    """A member's name for messages: quoted, unprintable characters escaped, shortened."""
    text = ascii(name) if not name.isprintable() else f"'{name}'"
    return text if len(text) <= 200 else text[:120] + "…" + text[-60:]
