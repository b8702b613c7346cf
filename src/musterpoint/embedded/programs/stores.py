"""Where data lies: a directory, S3, or anything that fsspec reads and writes. One interface for all of them.

Runs in a Python that may not have musterpoint. Between the store and the disk is a library's transfer.
"""

from __future__ import annotations

import errno
import importlib
import os
import shutil
import stat
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Callable, Iterable, Iterator, NamedTuple

from musterpoint.base.below import RESERVED, ForeignName, below

THREADS = 8
"""Files that are copied at a time where the library has no transfers of its own."""
PART = f"{RESERVED}part"
"""Begins the names of files that are being written; nobody reads them."""
TAGS = (
    "ETag",
    "etag",
    "md5Hash",
    "md5",
    "checksum",
    "sha256",
    "blob_id",
    "mtime",
    "LastModified",
    "last_modified",
    "updated",
    "created",
)
"""What filesystems of fsspec tell of a file's version, the best first."""

OnBytes = Callable[[int], None]
OnDone = Callable[[Any], None]
"""Gets None, or the error; called in another thread."""


UNKNOWN = -1
"""The size of a file whose store doesn't tell it."""


class Item(NamedTuple):
    """A file of a store: its name below the store's place, and its bytes, or :data:`UNKNOWN`. ``tag`` changes with the
    content.
    """

    name: str
    size: int
    tag: str


class Lacks(Exception):
    """This Python lacks a library; ``str(error)`` names it."""


class StoreError(Exception):
    """A store refused something, as a sentence. ``passing``: trying again may help. ``missing``: it isn't there.

    ``local``: this host's file or disk failed, not the store. ``kind``: a short name, to count the same ones.
    ``unreachable``: its address isn't known, or nothing listens there, and nothing has ever answered there.
    """

    kind = ""
    unreachable = False

    def __init__(self, sentence: str, passing: bool = False, missing: bool = False, local: bool = False) -> None:
        super().__init__(sentence)
        self.passing, self.missing, self.local = passing, missing, local


class Store:
    """``place`` is the URI, for people. What is begun by :meth:`fetch` and :meth:`send` runs in other threads."""

    place = ""

    def items(self) -> Iterator[Item]:
        """Every file, in no order. A place that is one file has one item, with that file's own name."""
        raise NotImplementedError

    def item(self, name: str) -> Item | None:
        """One file; None: it isn't there."""
        raise NotImplementedError

    def refusal(self, name: str) -> StoreError:
        """Why a file can't be had, in the store's own words where it has some."""
        return StoreError(f"there is no {name!r} at {self.place}", missing=True)

    def read(self, name: str) -> bytes | None:
        """A small file's content; None: it isn't there."""
        raise NotImplementedError

    def write(self, name: str, data: bytes) -> None:
        """Makes or replaces a small file, in one step where the store can."""
        raise NotImplementedError

    def create(self, name: str, data: bytes) -> bool:
        """Makes a small file; False: there is one of that name. A store that can't tell replaces it."""
        raise NotImplementedError

    def delete(self, names: Iterable[str]) -> None:
        """Removes files; one that isn't there is no error."""
        raise NotImplementedError

    def fetch(self, item: Item, path: str, on_bytes: OnBytes, on_done: OnDone) -> None:
        """Begins to bring this version of ``item`` to the file ``path``."""
        raise NotImplementedError

    def send(self, path: str, name: str, on_bytes: OnBytes, on_done: OnDone) -> None:
        """Begins to send the file ``path``. It is seen under ``name`` once it is whole, where the store can."""
        raise NotImplementedError

    def stream(self, item: Item, at: int = 0) -> Iterator[bytes]:
        """The content of this version from the byte ``at`` on, in pieces."""
        raise NotImplementedError

    def cancel(self) -> None:
        """Ends what was begun, as soon as that can be."""

    def explain(self, error: BaseException) -> StoreError:
        """``error``, which an operation of this store raised, as a sentence."""
        if isinstance(error, StoreError):
            return error
        if isinstance(error, OSError):
            passing = error.errno in (errno.EIO, errno.ESTALE, errno.ETIMEDOUT, errno.EAGAIN, errno.ECONNRESET)
            return StoreError(os_words(error), passing, isinstance(error, FileNotFoundError))
        return StoreError(f"{type(error).__name__}: {brief(error)}", passing=True)


def os_words(error: OSError) -> str:
    words = error.strerror or str(error)
    return f"{error.filename}: {words}" if error.filename else words


def brief(error: BaseException) -> str:
    """The message on one line."""
    return " ".join(str(error).split())[:300]


class _Pool:
    """Threads for stores whose library copies one file at a call. :meth:`cancel` drops what hasn't begun."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(THREADS)
        self._cancels = 0

    def begin(self, call: Callable[[], None], on_done: OnDone) -> None:
        cancels = self._cancels

        def work() -> None:
            try:
                if self._cancels != cancels:
                    raise StoreError("it was cancelled", passing=True)
                call()
            except BaseException as error:
                on_done(error)
            else:
                on_done(None)

        self._pool.submit(work)

    def cancel(self) -> None:
        self._cancels += 1


def _below(place: str, root: str, name: str) -> str:
    try:
        return below(root, name)
    except ForeignName as error:
        raise StoreError(f"{place}: {error}") from None


def tag_of(facts: os.stat_result) -> str:
    """The version of a local file."""
    return f"{facts.st_size}-{facts.st_mtime_ns}-{facts.st_ino}"


class DirectoryStore(Store):
    """A directory, or one file, of this host or of a mount. Links to files are files; links to directories, too, where
    they don't lead upwards.
    """

    def __init__(self, path: str) -> None:
        self.place = self._root = path
        self._pool = _Pool()
        self._made: set[str] = set()
        self._count = 0

    def items(self) -> Iterator[Item]:
        facts = os.stat(self._root)
        if stat.S_ISREG(facts.st_mode):
            yield Item(os.path.basename(self._root), facts.st_size, tag_of(facts))
            return
        yield from self._inside("", (os.path.realpath(self._root),))

    def _inside(self, folder: str, above: tuple[str, ...]) -> Iterator[Item]:
        with os.scandir(os.path.join(self._root, folder)) as entries:
            for entry in entries:
                name = os.path.join(folder, entry.name)
                if entry.name.startswith(PART):
                    continue
                try:
                    facts = entry.stat()
                except FileNotFoundError:  # a link to nothing, or removed meanwhile
                    continue
                if stat.S_ISREG(facts.st_mode):
                    yield Item(name, facts.st_size, tag_of(facts))
                elif stat.S_ISDIR(facts.st_mode):
                    real = os.path.realpath(entry.path)
                    if real not in above:
                        yield from self._inside(name, (*above, real))

    def _path(self, name: str) -> str:
        return self._root if os.path.isfile(self._root) else self._below(name)

    def _below(self, name: str) -> str:
        return _below(self.place, self._root, name)

    def item(self, name: str) -> Item | None:
        try:
            facts = os.stat(self._path(name))
        except (FileNotFoundError, NotADirectoryError):
            return None
        return Item(name, facts.st_size, tag_of(facts)) if stat.S_ISREG(facts.st_mode) else None

    def read(self, name: str) -> bytes | None:
        try:
            with open(self._below(name), "rb") as file:
                return file.read()
        except (FileNotFoundError, NotADirectoryError):
            return None

    def write(self, name: str, data: bytes) -> None:
        self._made_of(name, data, os.replace)

    def create(self, name: str, data: bytes) -> bool:
        try:
            self._made_of(name, data, _link)
        except FileExistsError:
            return False
        return True

    def _made_of(self, name: str, data: bytes, place: Callable[[str, str], None]) -> None:
        path, part = self._target(name)
        try:
            with open(part, "wb") as file:
                file.write(data)
                _to_disk(file.fileno())
            place(part, path)
        except OSError:
            _unlink(part)
            raise
        self._entry_to_disk(path)

    def delete(self, names: Iterable[str]) -> None:
        folders = set()
        for name in names:
            try:
                os.unlink(self._below(name))
            except FileNotFoundError:
                pass
            folders.add(os.path.dirname(name))
        for folder in sorted(folders, key=len, reverse=True):
            while folder:
                try:
                    os.rmdir(os.path.join(self._root, folder))
                except OSError:
                    break
                self._made.discard(os.path.join(self._root, folder))
                folder = os.path.dirname(folder)

    def fetch(self, item: Item, path: str, on_bytes: OnBytes, on_done: OnDone) -> None:
        source = self._path(item.name)

        def copy() -> None:
            with open(source, "rb") as file:
                if item.tag and tag_of(os.fstat(file.fileno())) != item.tag:
                    raise StoreError(f"{source} was replaced while it was being read", passing=True)
            shutil.copyfile(source, path)
            if item.tag and tag_of(os.stat(source)) != item.tag:
                raise StoreError(f"{source} was changed while it was being read", passing=True)
            on_bytes(item.size)

        self._pool.begin(copy, on_done)

    def send(self, path: str, name: str, on_bytes: OnBytes, on_done: OnDone) -> None:
        def copy() -> None:
            target, part = self._target(name)
            try:
                shutil.copyfile(path, part)
                with open(part, "rb") as file:
                    _to_disk(file.fileno())
                os.replace(part, target)
            except OSError:
                _unlink(part)
                raise
            self._entry_to_disk(target)
            on_bytes(os.path.getsize(target))

        self._pool.begin(copy, on_done)

    def stream(self, item: Item, at: int = 0) -> Iterator[bytes]:
        with open(self._path(item.name), "rb") as file:
            if item.tag and tag_of(os.fstat(file.fileno())) != item.tag:
                raise StoreError(f"{self._path(item.name)} was replaced while it was being read", passing=True)
            file.seek(at)
            while piece := file.read(1 << 20):
                yield piece

    def cancel(self) -> None:
        self._pool.cancel()

    def _target(self, name: str) -> tuple[str, str]:
        """The path of ``name``, and the one under which it is written."""
        path = self._below(name)
        folder = os.path.dirname(path)
        if folder not in self._made:
            os.makedirs(folder, exist_ok=True)
            self._made.add(folder)
        self._count += 1
        return path, os.path.join(folder, f"{PART}-{os.getpid()}-{threading.get_ident()}-{self._count}")

    def _entry_to_disk(self, path: str) -> None:
        """Writes the directory's entry out, so that a name is there after a power failure, too."""
        try:
            fd = os.open(os.path.dirname(path), os.O_RDONLY)
        except OSError:
            return
        try:
            _to_disk(fd)
        finally:
            os.close(fd)


def _to_disk(fd: int) -> None:
    try:
        os.fsync(fd)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):  # file systems that know no fsync
            raise


def _link(part: str, path: str) -> None:
    """Names a whole file, unless the name is taken."""
    try:
        os.link(part, path)
    except OSError as error:
        if error.errno not in (errno.EPERM, errno.ENOTSUP, errno.ENOSYS):
            raise
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666))  # a file system without links
        os.replace(part, path)
    _unlink(part)


def _unlink(path: str) -> None:
    try:
        os.unlink(path)
    except OSError:
        pass


class FsspecStore(Store):
    """Any other URI, by fsspec."""

    def __init__(self, uri: str) -> None:
        self.place = uri
        fsspec = _library("fsspec")
        try:
            self._fs, root = fsspec.core.url_to_fs(uri)
        except ImportError as error:
            raise Lacks(brief(error)) from None
        except ValueError as error:
            raise StoreError(f"{uri}: {brief(error)}") from None
        self._root = str(root).rstrip("/")
        self._pool = _Pool()

    def items(self) -> Iterator[Item]:
        self._fs.invalidate_cache()
        info = self._fs.info(self._root)
        if info["type"] == "file":
            yield _item(self._root.rpartition("/")[2], info)
            return
        for path, found in self._fs.find(self._root, withdirs=False, detail=True).items():
            yield _item(path[len(self._root) :].lstrip("/"), found)

    def item(self, name: str) -> Item | None:
        self._fs.invalidate_cache()
        try:
            return _item(name, self._fs.info(self._source(name)))
        except FileNotFoundError:
            return None

    def _path(self, name: str) -> str:
        return _below(self.place, self._root, name)

    def _source(self, name: str) -> str:
        return self._root if self._fs.isfile(self._root) else self._path(name)

    def read(self, name: str) -> bytes | None:
        try:
            return bytes(self._fs.cat_file(self._path(name)))
        except FileNotFoundError:
            return None

    def write(self, name: str, data: bytes) -> None:
        self._make_folder(name)
        self._fs.pipe_file(self._path(name), data)

    def create(self, name: str, data: bytes) -> bool:
        self._make_folder(name)
        try:
            self._fs.pipe_file(self._path(name), data, mode="create")
        except FileExistsError:
            return False
        except (TypeError, ValueError, NotImplementedError):  # a package that is older than the mode
            self._fs.pipe_file(self._path(name), data)
        return True

    def _make_folder(self, name: str) -> None:
        self._fs.makedirs(self._path(name).rpartition("/")[0], exist_ok=True)

    def delete(self, names: Iterable[str]) -> None:
        for name in names:
            try:
                self._fs.rm_file(self._path(name))
            except FileNotFoundError:
                pass

    def fetch(self, item: Item, path: str, on_bytes: OnBytes, on_done: OnDone) -> None:
        def copy() -> None:
            self._fs.get_file(self._source(item.name), path)
            on_bytes(item.size)

        self._pool.begin(copy, on_done)

    def send(self, path: str, name: str, on_bytes: OnBytes, on_done: OnDone) -> None:
        def copy() -> None:
            self._make_folder(name)
            self._fs.put_file(path, self._path(name))
            on_bytes(os.path.getsize(path))

        self._pool.begin(copy, on_done)

    def stream(self, item: Item, at: int = 0) -> Iterator[bytes]:
        with self._fs.open(self._source(item.name), "rb") as file:
            file.seek(at)
            while piece := file.read(1 << 20):
                yield piece

    def cancel(self) -> None:
        self._pool.cancel()


def _item(name: str, info: dict[str, Any]) -> Item:
    tag = next((info[key] for key in TAGS if info.get(key)), "")
    size = info.get("size")
    return Item(name, UNKNOWN if size is None else int(size), str(tag))


def _library(name: str) -> Any:
    try:
        found = importlib.import_module(name)
        if name == "fsspec":
            importlib.import_module("fsspec.core")
    except ImportError as error:
        raise Lacks(error.name or name) from None
    return found
