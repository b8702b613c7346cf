"""Names that others made, and the files that they may name: only those below one directory.

Such a name is an object's key, an entry of a manifest, a member of an archive, a line of a record. Also runs in a
Python without musterpoint, as a part of its programs.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import time
from typing import BinaryIO, Callable, Iterator

RESERVED = ".muster-"
"""Begins the names of musterpoint's own files and folders; no name that others made may have such a part."""
LONGEST_NAME, LONGEST_PATH = 255, 4000
"""Bytes of a part of a name, and of all of it."""
_PACKS, _PACK_PAUSE = 3, 0.2
"""How often a file that changes is packed anew, and the seconds before: these, then twice these."""
_PLACE = getattr(os, "O_PATH", os.O_RDONLY) | getattr(os, "O_DIRECTORY", 0) | getattr(os, "O_CLOEXEC", 0)
_FOLDER = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0) | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)


class ForeignName(ValueError):
    """A name that can't be the name of a file below a directory; the text quotes it and says why."""


def parts_of(name: str) -> list[str]:
    """The parts of a name, which "/" separates.

    Raises:
        ForeignName: one of them is empty, ``.``, ``..``, reserved or too long, or has a NUL.
    """
    parts = name.split("/")
    try:
        sizes = [len(os.fsencode(part)) for part in parts]
    except UnicodeEncodeError:
        raise ForeignName(f"{ascii(name)[:200]} is no text that a file can be named by") from None
    shown = repr(name) if len(name) <= 200 else f"{name[:80]!r}..."
    if "\0" in name:
        raise ForeignName(f"{shown} has a NUL in it")
    if name.startswith("/"):
        raise ForeignName(f"{shown} is absolute")
    if {"", ".", ".."} & set(parts):
        raise ForeignName(f"{shown} can't be the name of a file: it has an empty part, . or ..")
    if any(part.startswith(RESERVED) for part in parts):
        raise ForeignName(f"{shown} can't be used: names that begin with {RESERVED} are musterpoint's own")
    if max(sizes) > LONGEST_NAME or sum(sizes) + len(sizes) > LONGEST_PATH:
        raise ForeignName(f"{shown} is too long for the name of a file")
    return parts


def below(root: str, name: str) -> str:
    """The path of ``name`` below the directory ``root``. Links on the way aren't looked at: see :class:`Below`.

    Raises:
        ForeignName: it is no name of a file there.
    """
    return os.path.join(root, *parts_of(name))


def link_target(name: str, target: str) -> str:
    """The file below the same directory that a relative link ``name`` with ``target`` leads to, as a name.

    Raises:
        ForeignName: it leads out of the directory.
    """
    parts_of(name)
    end = os.path.normpath(os.path.join(os.path.dirname(name), target))
    if not target or os.path.isabs(target) or end == "." or end.split("/")[0] == "..":
        raise ForeignName(f"{name!r} is a link to {target!r}, which leads out of the directory")
    parts_of(end)
    return end


def only_regular(fd: int, path: str) -> int:
    """Returns ``fd``, an open file.

    Raises:
        OSError: it is no regular file; it is closed.
    """
    if stat.S_ISREG(os.fstat(fd).st_mode):
        return fd
    os.close(fd)
    raise OSError(errno.EINVAL, "it is no regular file", path)


def notes_of(directory: str, make: bool = False) -> str:
    """The folder of musterpoint's own files about ``directory``, in the same file system. ``make``: it is made, for
    this user alone.

    It is beside it, since a program may look whether there is anything in it; inside of it where it is a mount, where
    nothing can be made beside it, or where a folder of that name isn't this user's alone, as in a directory that users
    share.

    Raises:
        OSError: it can't be made.
    """
    try:
        fd = os.open(directory, _PLACE)
    except OSError:
        above, name = os.path.split(os.path.realpath(directory))
        return os.path.join(above, f"{RESERVED}{name}")
    try:
        return _beside(directory, fd, make) or _inside(directory, fd, make)
    finally:
        os.close(fd)


def _beside(directory: str, fd: int, make: bool) -> str:
    """The folder beside the open ``directory``; empty: there can be none."""
    path = _path_of(fd) or os.path.realpath(directory)
    above, name = os.path.split(path)
    try:
        folder = os.open("..", _PLACE, dir_fd=fd)
    except OSError:
        return ""
    try:
        here, there = os.fstat(fd), os.fstat(folder)
        if here.st_dev != there.st_dev or not name or not os.path.samestat(here, os.stat(name, dir_fd=folder)):
            return ""
        if not os.access(".", os.W_OK | os.X_OK, dir_fd=folder):
            return ""
        name = f"{RESERVED}{name}"
        if make:
            with contextlib.suppress(FileExistsError):
                os.mkdir(name, 0o700, dir_fd=folder)
        return os.path.join(above, name) if _is_ours(name, folder, make) else ""
    except OSError:
        return ""
    finally:
        os.close(folder)


def _is_ours(name: str, folder: int, make: bool) -> bool:
    """Tells whether the notes ``name`` in a folder are this user's alone, or not there yet."""
    try:
        facts = os.lstat(name, dir_fd=folder)
    except FileNotFoundError:
        return not make
    if not stat.S_ISDIR(facts.st_mode) or facts.st_uid != os.geteuid() or facts.st_mode & 0o022:
        return False
    if make and facts.st_mode & 0o077:  # an earlier version let others read it
        fd = os.open(name, _FOLDER, dir_fd=folder)
        try:
            os.fchmod(fd, 0o700)
        finally:
            os.close(fd)
    return True


def _inside(directory: str, fd: int, make: bool) -> str:
    name = f"{RESERVED}part"
    if make:
        with contextlib.suppress(FileExistsError):
            os.mkdir(name, 0o700, dir_fd=fd)
    path = os.path.join(directory, name)
    if not _is_ours(name, fd, make):
        raise PermissionError(errno.EPERM, "it isn't a folder of this user's alone", path)
    return path


def _path_of(fd: int) -> str:
    """The path of an open folder, whatever has been renamed meanwhile; empty: the system doesn't tell."""
    try:
        return os.readlink(f"/proc/self/fd/{fd}")
    except OSError:
        return ""


class Below:
    """The files below ``root``, by names that others made. No link on the way to one is followed.

    Every call raises ForeignName for a name that isn't allowed, and OSError as the system does.
    """

    def __init__(self, root: str) -> None:
        self.root = root

    def open_root(self) -> int:
        """A descriptor of ``root``."""
        return os.open(self.root, _FOLDER & ~getattr(os, "O_NOFOLLOW", 0))

    def path(self, name: str) -> str:
        return below(self.root, name)

    def listing(self, folder: str = "") -> list[tuple[str, os.stat_result]]:
        """Lists a folder by names below the root, in their order, with facts; a link has its own."""
        found = []
        with _Opened(self, f"{folder}/-" if folder else "-") as (fd, _), os.scandir(fd) as entries:
            for entry in entries:
                with contextlib.suppress(FileNotFoundError):  # removed meanwhile
                    name = f"{folder}/{entry.name}" if folder else entry.name
                    found.append((name, entry.stat(follow_symlinks=False)))
        return sorted(found, key=lambda each: each[0])

    def walk(self, folder: str = "", private: str = RESERVED) -> Iterator[tuple[str, os.stat_result]]:
        """Walks through all below a folder, each folder before its content.

        What is musterpoint's own is left out, as are folders whose names begin with ``private``.
        """
        try:
            found = self.listing(folder)
        except (OSError, ForeignName):  # removed meanwhile, a link now, too deep, or closed to us
            return
        for name, facts in found:
            last, is_folder = os.path.basename(name), stat.S_ISDIR(facts.st_mode)
            if last.startswith(RESERVED) or (is_folder and last.startswith(private)):
                continue
            yield name, facts
            if is_folder:
                yield from self.walk(name, private)

    def real(self, name: str) -> str:
        """Follows links: returns the name below the root of what ``name`` leads to, ``.`` for the root itself. What has
        that name is opened without following any link.

        Raises:
            ForeignName: it leads out of the directory.
        """
        end = os.path.relpath(os.path.realpath(self.path(name)), os.path.realpath(self.root))
        if end.split("/")[0] == "..":
            raise ForeignName(f"{name!r} leads out of the directory")
        return end

    def facts(self, name: str) -> os.stat_result | None:
        """The facts of a file, of a link its own; None: there is nothing."""
        try:
            with _Opened(self, name) as (folder, leaf):
                return os.stat(leaf, dir_fd=folder, follow_symlinks=False)
        except (FileNotFoundError, NotADirectoryError):
            return None

    def is_folder(self, name: str) -> bool:
        """Whether a folder is there; a link to one isn't."""
        facts = self.facts(name)
        return facts is not None and stat.S_ISDIR(facts.st_mode)

    def open(self, name: str) -> int:
        """A descriptor that reads the regular file."""
        with _Opened(self, name) as (folder, leaf):
            if not stat.S_ISREG(os.lstat(leaf, dir_fd=folder).st_mode):  # opening a device may do something
                raise OSError(errno.EINVAL, "it is no regular file", self.path(name))
            fd = os.open(leaf, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
        return only_regular(fd, self.path(name))

    def file(self, name: str) -> BinaryIO:
        """The regular file, to be read."""
        return open(self.open(name), "rb")

    def read(self, name: str, most: int) -> bytes | None:
        """The first ``most`` bytes of a regular file; None: there is none."""
        facts = self.facts(name)
        if facts is None or not stat.S_ISREG(facts.st_mode):
            return None
        with self.file(name) as file:
            return file.read(most)

    def link(self, name: str, path: str) -> None:
        """Gives a file another name, at ``path`` in the same file system."""
        with _Opened(self, name) as (folder, leaf):
            os.link(leaf, path, src_dir_fd=folder, follow_symlinks=False)

    def pack(self, name: str, archive: Archive, member: str, target: str = "") -> None:
        """Puts a file, folder or link into an archive as ``member``, whole or not at all. ``target``: the link's there,
        else its own.

        Raises:
            Changed: a file was written into each time that it was packed.
        """
        facts = self.facts(name)
        if facts is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), self.path(name))
        if stat.S_ISREG(facts.st_mode):
            for number in range(_PACKS):
                time.sleep(number * _PACK_PAUSE)
                if self._packs(name, archive, member):
                    return
            raise Changed(errno.EBUSY, "it changed while it was packed", self.path(name))
        info = archive.tar.tarinfo(member)
        info.mode, info.mtime = stat.S_IMODE(facts.st_mode), int(facts.st_mtime)
        info.uid, info.gid = facts.st_uid, facts.st_gid
        info.type, info.linkname = b"5", ""  # a folder, as tar has it
        if stat.S_ISLNK(facts.st_mode):
            info.type, info.linkname = b"2", target or self.target(name) or ""
        archive.tar.addfile(info)

    def _packs(self, name: str, archive: Archive, member: str) -> bool:
        """Packs a regular file; False: it changed meanwhile, and the archive is as before."""
        is_same = False
        with self.file(name) as file, archive.taken_back(lambda: not is_same):
            before = _version(os.fstat(file.fileno()))
            try:
                archive.tar.addfile(archive.tar.gettarinfo(arcname=member, fileobj=file), file)
            except OSError as error:
                if error.errno is not None:
                    raise
                return False  # tarfile's words for a file that has become shorter
            now = self.facts(name)
            is_same = now is not None and before == _version(os.fstat(file.fileno())) == _version(now)
        return is_same

    def target(self, name: str) -> str | None:
        """The target of a link; None: there is no link."""
        try:
            with _Opened(self, name) as (folder, leaf):
                return os.readlink(leaf, dir_fd=folder)
        except OSError:
            return None

    def put(self, source: str, name: str) -> None:
        """Moves the whole file, or link, ``source`` of the same file system to its name; folders are made."""
        while True:
            try:
                with _Opened(self, name, make=True) as (folder, leaf):
                    os.replace(source, leaf, dst_dir_fd=folder)
                return
            except FileNotFoundError:  # another host of the same disk has just removed a folder that was empty
                if not os.path.lexists(source):
                    raise

    def move(self, name: str, to: Below) -> None:
        """Moves a file, or link, to the same name below another directory of the same file system."""
        with _Opened(self, name) as (folder, leaf), _Opened(to, name, make=True) as (other, _):
            os.replace(leaf, leaf, src_dir_fd=folder, dst_dir_fd=other)

    def remove(self, name: str) -> None:
        """Removes a file, or link; one that isn't there is no error."""
        try:
            with _Opened(self, name) as (folder, leaf):
                os.unlink(leaf, dir_fd=folder)
        except (FileNotFoundError, NotADirectoryError):
            pass

    def remove_folder(self, name: str) -> None:
        """Removes an empty folder."""
        with _Opened(self, name) as (folder, leaf):
            os.rmdir(leaf, dir_fd=folder)


class Changed(OSError):
    """A file was written into each time that it was read."""


def _version(facts: os.stat_result) -> tuple[int, ...]:
    """Differs when the content has changed; no program can set the time of the last change of the inode."""
    return facts.st_dev, facts.st_ino, facts.st_size, facts.st_mtime_ns, facts.st_ctime_ns


class Archive:
    """A ``.tar.gz`` that is written to ``path``. ``tar``: what takes members; the last ones can be taken back."""

    def __init__(self, path: str) -> None:
        import tarfile  # few of those that name files write archives
        import zlib

        self._packer = zlib.compressobj(1, zlib.DEFLATED, 16 + zlib.MAX_WBITS)
        self._file = open(path, "wb")  # noqa: SIM115
        self.tar = tarfile.open(fileobj=self, mode="w")  # type: ignore[call-overload]  # noqa: SIM115

    def tell(self) -> int:
        return 0

    def write(self, data: bytes) -> int:
        self._file.write(self._packer.compress(data))
        return len(data)

    @contextlib.contextmanager
    def taken_back(self, is_unwanted: Callable[[], bool]) -> Iterator[None]:
        """Takes back what is added inside, where that fails or ``is_unwanted`` afterwards."""
        tar, packer, at = self.tar, self._packer.copy(), self._file.tell()
        offset, count = tar.offset, len(tar.members)
        try:
            yield
        finally:
            if is_unwanted():
                tar.offset, self._packer = offset, packer
                del tar.members[count:]
                tar.inodes.clear()  # no hard link to what isn't there
                self._file.seek(at)
                self._file.truncate()

    def __enter__(self) -> Archive:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        try:
            if kind is None:
                self.tar.close()
                self._file.write(self._packer.flush())
        finally:
            with contextlib.ExitStack() as kept:
                if kind is not None:
                    kept.enter_context(contextlib.suppress(OSError))  # what failed is told, not this
                self._file.close()


class Tree(Below):
    """A tree that a job writes. ``root`` is its real path before the job.

    No link on the way to it is followed: a folder that the job makes a link of is no folder any more.
    """

    def open_root(self) -> int:
        fd = os.open("/", _PLACE)
        for part in filter(None, self.root.split("/")):
            above = fd
            try:
                fd = os.open(part, _PLACE | getattr(os, "O_NOFOLLOW", 0), dir_fd=above)
            finally:
                os.close(above)
        try:
            return os.open(".", _FOLDER, dir_fd=fd)
        finally:
            os.close(fd)


class _Opened:
    """The folder in which a name is, as a descriptor, and the name's last part."""

    def __init__(self, below: Below, name: str, make: bool = False) -> None:
        self._below, self._parts, self._make, self._fd = below, parts_of(name), make, -1

    def __enter__(self) -> tuple[int, str]:
        *folders, leaf = self._parts
        root = self._below.root
        if self._make:
            os.makedirs(root, exist_ok=True)
        self._fd = self._below.open_root()
        try:
            for at, part in enumerate(folders):
                self._enter(part, os.path.join(root, *folders[: at + 1]))
        except BaseException:
            os.close(self._fd)
            raise
        return self._fd, leaf

    def _enter(self, part: str, path: str) -> None:
        if self._make:
            try:
                os.mkdir(part, dir_fd=self._fd)
            except FileExistsError:
                pass
        try:
            inner = os.open(part, _FOLDER, dir_fd=self._fd)
        except OSError as error:
            if error.errno in (errno.ENOTDIR, errno.ELOOP):
                raise NotADirectoryError(errno.ENOTDIR, "a file or link is in the place of a folder", path) from None
            raise
        os.close(self._fd)
        self._fd = inner

    def __exit__(self, *_: object) -> None:
        os.close(self._fd)
