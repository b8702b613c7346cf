"""Unpacks the user's archive into one directory, or refuses it and names the member that isn't allowed.

The archive is read twice: all of it is checked before anything is written. The directory is new, nobody else uses it,
and nothing is ever written through a link.
"""

import lzma
import os
import struct
import sys
import zipfile
import zlib
from typing import Callable, NoReturn

from musterpoint.base.errors import FetchError
from musterpoint.base.records import NamedTuple
from musterpoint.core.code.archive_members import ArchiveMember, Kind, zip_members
from musterpoint.core.code.packed import packing_of
from musterpoint.core.code.tar import has_check_sum, tar_members


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
    """How many members an archive had, and their bytes together."""

    members: int
    size: int


_HEADERS = 5120
"""Bytes of a tar that one small member's headers and padding may take."""
_DEEPEST = 200
"""Nested directories: a program that removes a tree recurses into each of them."""
_LONGEST_NAME = 255
_LONGEST_PATH = 4095
"""Bytes of a name and of a path that Linux allows."""
_MOST_MEMORY = 96 * 1024**2
"""Bytes of memory that paths and links may take: 500,000 members with paths of 80 characters."""
_ENTRY = 64
"""Bytes of a dictionary's entry."""
_HOPS = 40
"""Links that Linux follows on the way to a file."""
_STEPS = 2_000_000
"""Parts of paths that may be visited to follow an archive's links; half a million links need no more."""
_BROKEN = (EOFError, UnicodeError, ValueError, RecursionError, OverflowError, struct.error, zlib.error)


def is_archive(path: str) -> bool:
    """Whether the file is a zip, or a tar, packed with gzip, bzip2, xz or not at all; by its first bytes."""
    with open(path, "rb") as file:
        head = file.read(512)
    return bool(packing_of(head)) or head[257:262] == b"ustar" or (len(head) == 512 and has_check_sum(head))


def unpack(
    path: str, folder: str, name: str, poll: Callable[[], None] = lambda: None, limits: Limits = LIMITS
) -> Unpacked:
    """Unpacks the archive at ``path`` (called ``name`` in messages) into ``folder``, which is new and empty.

    ``poll`` is called between pieces of work and may raise. Owners, set-user-ID bits and the right of others to write
    are dropped. Of a file that comes twice the last one is kept, as ``tar`` does.

    Raises:
        FetchError: the archive is broken, or has a member that isn't allowed; the message names it.
    """
    with open(path, "rb") as file:
        packing = packing_of(file.read(512))
    most = min(limits.size, max(limits.free, limits.ratio * os.path.getsize(path)))
    most_bytes = most + _HEADERS * limits.members
    for writes in (False, True):
        tree = _Tree(folder, name, most, limits.members, poll, writes)
        try:
            zipped = packing == "zip"
            for member in zip_members(path, name) if zipped else tar_members(path, packing, name, most_bytes, poll):
                tree.add(member)
        except FetchError:
            raise
        except Exception as error:
            if not isinstance(error, _broken()):
                raise
            raise FetchError(f"{name} can't be unpacked: {_what_is_broken(error)}") from None
        tree.check_links()
        tree.check_space()
    return Unpacked(tree.members, tree.size)


class _Tree:
    """The directory while it is filled. With ``writes`` false nothing is written, only checked."""

    def __init__(
        self, folder: str, name: str, most: int, most_members: int, poll: Callable[[], None], writes: bool
    ) -> None:
        self.members = 0
        self.size = 0
        self._folder, self._name, self._poll, self._writes = folder, name, poll, writes
        self._most, self._most_members = most, most_members
        self._longest = _LONGEST_PATH - len(os.fsencode(folder)) - 1
        self._kinds: dict[str, Kind] = {}
        self._targets: dict[str, str] = {}
        self._memory = self._steps = 0

    def add(self, member: ArchiveMember) -> None:
        self._poll()
        self.members += 1
        if self.members > self._most_members:
            self._refuse(member, f"it is one of more than {self._most_members:,} members")
        path = self._path(member)
        if path == "":
            if member.kind != "directory":
                self._refuse(member, "it has no name of its own")
            return
        self._make_parents(member, path)
        kind: Kind = "file" if member.kind == "hard link" else member.kind
        before = self._kinds.get(path)
        if before is not None and before != kind:
            self._refuse(member, f"it is there already, as a {before}")
        self._check(member, path)
        if self._writes:
            try:
                self._put(member, path)
            except OSError as error:
                if error.errno is None:  # not the file system's: broken packing
                    raise
                raise FetchError(f"{self._name}: {shown(member.name)} can't be written: {error.strerror}") from None
        self._add_path(member, path, kind)

    def check_links(self) -> None:
        """Refuses symbolic links that lead out of the directory, through whatever other links."""
        for path in self._targets:
            self._poll()
            if self._leads_out(path):
                raise self._refusal(path, "it is a link that leads out of the code")

    def check_space(self) -> None:
        """Refuses an archive that doesn't fit on the disk; checked before anything is written."""
        if self._writes:
            return
        disk = os.statvfs(self._folder)
        for wanted, free, what in (
            (self.size, disk.f_bavail * disk.f_frsize, "bytes"),
            (len(self._kinds), disk.f_favail if disk.f_files else sys.maxsize, "files and directories"),
        ):
            if wanted > free:
                raise FetchError(
                    f"{self._name} is refused: it unpacks to {wanted:,} {what}, and the disk of {self._folder} has "
                    f"room for {free:,}"
                )

    def _add_path(self, member: ArchiveMember, path: str, kind: Kind) -> None:
        if path not in self._kinds:
            self._memory += sys.getsizeof(path) + _ENTRY
            if len(self._kinds) >= self._most_members:
                self._refuse(member, f"with it there are more than {self._most_members:,} files and directories")
        self._kinds[path] = kind
        if kind == "symlink":
            self._memory += sys.getsizeof(member.target) + _ENTRY
            self._targets[path] = member.target
        if self._memory > _MOST_MEMORY:
            self._refuse(member, f"with it the archive's paths take more than {_MOST_MEMORY // 1024**2} MiB of memory")

    def _check(self, member: ArchiveMember, path: str) -> None:
        """Checks a member before anything is written."""
        if member.kind == "file":
            self._count(member)
        elif member.kind == "symlink":
            self._check_target(member, path)
        elif member.kind == "hard link":
            if self._kinds.get(self._source(member)) != "file":
                self._refuse(member, f"it is a link to {shown(member.target)}, which isn't a file before it")
        elif member.kind != "directory":
            self._refuse(member, f"it is {member.other}")

    def _put(self, member: ArchiveMember, path: str) -> None:
        place = os.path.join(self._folder, path)
        if member.kind == "directory":
            if path not in self._kinds:
                os.mkdir(place, 0o755)
            os.chmod(place, 0o700 | member.mode & 0o055)
        elif member.kind == "file":
            self._write(member, place, path)
        elif member.kind == "symlink":
            self._remove(path, place)
            os.symlink(member.target, place)
        else:
            source = self._source(member)
            if source != path:
                self._remove(path, place)
                os.link(os.path.join(self._folder, source), place)

    def _source(self, member: ArchiveMember) -> str:
        return self._normal(member, member.target, "a link to")

    def _write(self, member: ArchiveMember, place: str, path: str) -> None:
        self._remove(path, place)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0)
        with open(os.open(place, flags, 0o600), "wb") as out:
            left = member.size
            for piece in member.pieces():
                self._poll()
                left -= len(piece)
                out.write(piece)
            if left:
                raise EOFError(f"{shown(member.name)} is cut short by {left:,} bytes")
        os.chmod(place, 0o600 | member.mode & 0o755)
        if 0 < member.modified < 2**33:
            os.utime(place, (member.modified, member.modified))

    def _count(self, member: ArchiveMember) -> None:
        if member.size < 0:
            self._refuse(member, f"its size is {member.size}")
        self.size += member.size
        if self.size > self._most:
            self._refuse(
                member, f"with it the archive unpacks to {self.size:,} bytes, more than the {self._most:,} it may have"
            )

    def _path(self, member: ArchiveMember) -> str:
        """The member's path in the tree; empty for the tree itself."""
        return self._normal(member, member.name, "the path")

    def _normal(self, member: ArchiveMember, name: str, what: str) -> str:
        """``name`` without parts that mean nothing, such as ``./``. Windows' separators count too."""
        parts = name.replace("\\", "/").split("/")
        if "\0" in name:
            self._refuse(member, f"{what} {shown(name)} has a NUL in it")
        if name.startswith(("/", "\\")) or (len(parts[0]) == 2 and parts[0].endswith(":") and len(parts) > 1):
            if parts.count("") == len(parts):  # nothing but the root, which the SDK's own packing writes
                return ""
            self._refuse(member, f"{what} {shown(name)} is absolute")
        if ".." in parts:
            self._refuse(member, f"{what} {shown(name)} leads out of the code")
        parts = [part for part in parts if part not in ("", ".")]
        if len(parts) > _DEEPEST:
            self._refuse(member, f"{what} {shown(name)} is {len(parts):,} directories deep, more than {_DEEPEST}")
        path = "/".join(parts)
        if len(name) * 4 > _LONGEST_NAME:  # most are short
            longest = max((len(os.fsencode(part)) for part in parts), default=0)
            if longest > _LONGEST_NAME:
                self._refuse(member, f"a name in {shown(name)} has {longest:,} bytes, more than {_LONGEST_NAME}")
            if len(os.fsencode(path)) > self._longest:
                self._refuse(member, f"{what} {shown(name)} has more than the {self._longest:,} bytes that fit here")
        return path

    def _make_parents(self, member: ArchiveMember, path: str) -> None:
        parent = os.path.dirname(path)
        if not parent or self._kinds.get(parent) == "directory":
            return
        made = ""
        for part in parent.split("/"):
            made = f"{made}/{part}" if made else part
            kind = self._kinds.get(made)
            if kind is None:
                if self._writes:
                    try:
                        os.mkdir(os.path.join(self._folder, made), 0o755)
                    except OSError as error:
                        raise FetchError(
                            f"{self._name}: {shown(member.name)} can't be written: {error.strerror}"
                        ) from None
                self._add_path(member, made, "directory")
            elif kind != "directory":
                self._refuse(member, f"it lies behind {shown(made)}, which is a {kind}")

    def _check_target(self, member: ArchiveMember, path: str) -> None:
        """Checks a link's target as written, without following other links."""
        if os.path.isabs(member.target) or "\0" in member.target:
            self._refuse(member, f"it is a link to {shown(member.target)}, which leads out of the code")
        if member.target.count("/") > _DEEPEST or len(os.fsencode(member.target)) > self._longest:
            self._refuse(member, f"it is a link to {shown(member.target)}, which is too long")
        end = os.path.normpath(os.path.join(os.path.dirname(path), member.target))
        if end == ".." or end.startswith("../"):
            self._refuse(member, f"it is a link to {shown(member.target)}, which leads out of the code")

    def _leads_out(self, path: str) -> bool:
        """Whether a symbolic link leads out of the tree, all other links followed.

        More links on the way than Linux follows lead nowhere. A part that doesn't exist counts as a directory.
        """
        hops, ahead = 0, path.split("/")[::-1]
        at: list[str] = []
        while ahead:
            self._steps += 1
            if self._steps > _STEPS:
                raise self._refusal(path, f"to see where the archive's links lead takes more than {_STEPS:,} steps")
            part = ahead.pop()
            if part == "..":
                if not at:
                    return True
                at.pop()
            elif part not in ("", "."):
                at.append(part)
                target = self._targets.get("/".join(at)) if len(at) <= _DEEPEST else None
                if target is not None:
                    if (hops := hops + 1) > _HOPS:
                        return False
                    at.pop()
                    ahead += target.split("/")[::-1]
        return False

    def _remove(self, path: str, place: str) -> None:
        if path in self._kinds:
            os.unlink(place)

    def _refuse(self, member: ArchiveMember, why: str) -> NoReturn:
        raise self._refusal(member.name, why)

    def _refusal(self, name: str, why: str) -> FetchError:
        return FetchError(f"{self._name} is refused because of its member {shown(name)}: {why}")


def _broken() -> tuple[type[BaseException], ...]:
    """The errors that reading a broken archive raises. Errors of writing to this host's disk are FetchErrors."""
    return (*_BROKEN, OSError, lzma.LZMAError, zipfile.BadZipFile, NotImplementedError, RuntimeError, MemoryError)


def _what_is_broken(error: BaseException) -> str:
    words = (error.strerror if isinstance(error, OSError) else "") or str(error) or type(error).__name__
    words = words if len(words) <= 200 else words[:200] + "…"  # it may quote names from the zip
    # "CRC check failed" keeps its capitals
    return "it is broken or cut short: " + (words if words[:2].isupper() else words[:1].lower() + words[1:])


def shown(name: str) -> str:
    """A member's name for messages: quoted, unprintable characters escaped, shortened."""
    text = ascii(name) if not name.isprintable() else f"'{name}'"
    return text if len(text) <= 200 else text[:120] + "…" + text[-60:]
