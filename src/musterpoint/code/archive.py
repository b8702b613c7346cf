"""Unpacking the user's archive: everything it names lands inside one directory, or the archive is refused by member.

Nothing is left to ``tarfile``'s own extraction, whose filters came with 3.10.12 and 3.11.4. The directory is new and
ours alone, nothing is ever written through a link, and links are looked at again when all of them are there.
"""

import os
import struct
import zlib
from typing import Callable, NamedTuple, NoReturn

from musterpoint.code.members import Member, packing_of, tar_members, zip_members
from musterpoint.errors import FetchError


class Limits(NamedTuple):
    """What an archive may come to: ``members``, and ``size`` in bytes unpacked.

    Beyond ``free`` bytes it may also be no more than ``ratio`` times its packed size: source code packs 3 to 20 times
    smaller, a bomb 1,000 times.
    """

    members: int = 500_000
    size: int = 32 * 1024**3
    free: int = 1024**3
    ratio: int = 200


LIMITS = Limits()


class Unpacked(NamedTuple):
    """How many members an archive had, and how many bytes they came to."""

    members: int
    size: int


_CHUNK = 1024 * 1024
_HEADERS = 2048
"""Bytes of a tar that one small member's headers and padding may take."""
_DEEPEST = 200
"""Directories in one another: what removes a tree goes into each of them."""
_BROKEN = (EOFError, UnicodeError, ValueError, RecursionError, OverflowError, struct.error, zlib.error)


def unpack(
    path: str, folder: str, name: str, breathe: Callable[[], None] = lambda: None, limits: Limits = LIMITS
) -> Unpacked:
    """Unpacks the archive at ``path``, which people know as ``name``, into ``folder``, which is new and empty.

    ``breathe`` is called between pieces of work and may raise. Owners, set-user-ID and the like, and others' right to
    write are dropped. A file that comes twice is the last one, as in ``tar``.

    Raises:
        FetchError: the archive is broken, or has a member that can't be let in; the message names it.
    """
    import tarfile

    with open(path, "rb") as file:
        packing = packing_of(file.read(512))
    packed = os.path.getsize(path)
    most = min(limits.size, max(limits.free, limits.ratio * packed))
    tree = _Tree(folder, name, most, limits.members, breathe)
    try:
        stream_most = most + _HEADERS * limits.members
        for member in zip_members(path) if packing == "zip" else tar_members(path, packing, name, stream_most):
            tree.add(member)
    except FetchError:
        raise
    except Exception as error:
        if not isinstance(error, (tarfile.TarError, *_broken())):
            raise
        raise FetchError(f"{name} can't be unpacked: {_what_is_broken(error)}") from None
    tree.check_links()
    return Unpacked(tree.members, tree.size)


class _Tree:
    """The directory as it fills; ``kinds`` is what lies at each path in it."""

    def __init__(self, folder: str, name: str, most: int, most_members: int, breathe: Callable[[], None]) -> None:
        self.members = 0
        self.size = 0
        self._folder, self._name, self._breathe = folder, name, breathe
        self._most, self._most_members = most, most_members
        self._kinds: dict[str, str] = {}

    def add(self, member: Member) -> None:
        self._breathe()
        self.members += 1
        if self.members > self._most_members:
            self._refuse(member, f"it is one of more than {self._most_members:,} members")
        path = self._path(member)
        if path == "":
            if member.kind != "directory":
                self._refuse(member, "it has no name of its own")
            return
        self._make_parents(member, path)
        kind = "file" if member.kind == "hard link" else member.kind
        before = self._kinds.get(path)
        if before is not None and before != kind:
            self._refuse(member, f"it is there already, as a {before}")
        try:
            self._put(member, path)
        except OSError as error:
            if error.errno is None:  # not the file system's: broken packing
                raise
            raise FetchError(f"{self._name}: {shown(member.name)} can't be written: {error.strerror}") from None
        self._kinds[path] = kind

    def check_links(self) -> None:
        """No symbolic link leads out, whatever lies between its ends."""
        root = os.path.realpath(self._folder)
        for path, kind in self._kinds.items():
            if kind == "symlink":
                end = os.path.realpath(os.path.join(root, path))
                if end != root and not end.startswith(os.path.join(root, "")):
                    raise self._refusal(path, "it is a link that leads out of the code")

    def _put(self, member: Member, path: str) -> None:
        place = os.path.join(self._folder, path)
        if member.kind == "directory":
            if path not in self._kinds:
                os.mkdir(place, 0o755)
            os.chmod(place, 0o700 | member.mode & 0o055)
        elif member.kind == "file":
            self._write(member, place, path)
        elif member.kind == "symlink":
            self._check_target(member, path)
            self._remove(path, place)
            os.symlink(member.target, place)
        elif member.kind == "hard link":
            source = self._normal(member, member.target, "a link to")
            if self._kinds.get(source) != "file":
                self._refuse(member, f"it is a link to {shown(member.target)}, which isn't a file before it")
            if source != path:
                self._remove(path, place)
                os.link(os.path.join(self._folder, source), place)
        else:
            self._refuse(member, f"it is {member.kind}")

    def _write(self, member: Member, place: str, path: str) -> None:
        self._count(member, member.size)
        self._remove(path, place)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0)
        with open(os.open(place, flags, 0o600), "wb") as out:
            left = member.size
            with member.read() if member.read else open(os.devnull, "rb") as content:
                while piece := content.read(_CHUNK):
                    self._breathe()
                    left -= len(piece)
                    if left < 0:
                        self._refuse(member, f"it is longer than the {member.size:,} bytes that it claims to have")
                    out.write(piece)
            if left:
                raise EOFError(f"{shown(member.name)} is cut short by {left:,} bytes")
        os.chmod(place, 0o600 | member.mode & 0o755)
        if 0 < member.modified < 2**33:
            os.utime(place, (member.modified, member.modified))

    def _count(self, member: Member, size: int) -> None:
        if size < 0:
            self._refuse(member, f"its size is {size}")
        self.size += size
        if self.size > self._most:
            self._refuse(
                member, f"with it the archive unpacks to {self.size:,} bytes, more than the {self._most:,} it may have"
            )

    def _path(self, member: Member) -> str:
        """Where the member lies in the tree; empty for the tree itself."""
        return self._normal(member, member.name, "the path")

    def _normal(self, member: Member, name: str, what: str) -> str:
        """``name`` without what means nothing, such as ``./``. Windows' separators count, too."""
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
        return "/".join(parts)

    def _make_parents(self, member: Member, path: str) -> None:
        parent = os.path.dirname(path)
        if not parent or self._kinds.get(parent) == "directory":
            return
        made = ""
        for part in parent.split("/"):
            made = f"{made}/{part}" if made else part
            kind = self._kinds.get(made)
            if kind is None:
                try:
                    os.mkdir(os.path.join(self._folder, made), 0o755)
                except OSError as error:
                    raise FetchError(f"{self._name}: {shown(member.name)} can't be written: {error.strerror}") from None
                self._kinds[made] = "directory"
            elif kind != "directory":
                self._refuse(member, f"it lies behind {shown(made)}, which is a {kind}")

    def _check_target(self, member: Member, path: str) -> None:
        """A first look at a link's target, without the links on the way to it."""
        if os.path.isabs(member.target) or "\0" in member.target:
            self._refuse(member, f"it is a link to {shown(member.target)}, which leads out of the code")
        end = os.path.normpath(os.path.join(os.path.dirname(path), member.target))
        if end == ".." or end.startswith("../"):
            self._refuse(member, f"it is a link to {shown(member.target)}, which leads out of the code")

    def _remove(self, path: str, place: str) -> None:
        if path in self._kinds:
            os.unlink(place)

    def _refuse(self, member: Member, why: str) -> NoReturn:
        raise self._refusal(member.name, why)

    def _refusal(self, name: str, why: str) -> FetchError:
        return FetchError(f"{self._name} is refused because of its member {shown(name)}: {why}")


def _broken() -> tuple[type[BaseException], ...]:
    """What the readers of broken archives raise. Those of files on this host's disk come as FetchError."""
    import lzma
    import zipfile

    return (*_BROKEN, OSError, lzma.LZMAError, zipfile.BadZipFile, NotImplementedError, RuntimeError, MemoryError)


def _what_is_broken(error: BaseException) -> str:
    words = str(error) or type(error).__name__
    # "CRC check failed" keeps its capitals
    return "it is broken or cut short: " + (words if words[:2].isupper() else words[:1].lower() + words[1:])


def shown(name: str) -> str:
    """A member's name for people: quoted, with what can't be printed escaped, and not endless."""
    text = ascii(name) if not name.isprintable() else f"'{name}'"
    return text if len(text) <= 200 else text[:120] + "…" + text[-60:]
