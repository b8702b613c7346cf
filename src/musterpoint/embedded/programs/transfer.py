"""Moves files between a place and this host's disk: many at once, whole or not at all, tried again where that may help.

A place is a directory, S3, or a URI for which fsspec has a package; :func:`open_store` opens it. Rooms start programs
with this; in a process of ours it can be imported. Runs in a Python that may not have musterpoint.
"""

from __future__ import annotations

import collections
import contextlib
import errno
import json
import math
import os
import queue
import shutil
import stat
import sys
import threading
import time
from typing import Any, BinaryIO, Callable, Iterable, Iterator, NamedTuple, Sequence, TypeVar

from musterpoint.base.below import RESERVED, Below, ForeignName, below, notes_of, only_regular, parts_of
from musterpoint.embedded.programs.transfer_s3 import (
    UNKNOWN,
    Again,
    Item,
    Lacks,
    OnBytes,
    S3Store,
    Store,
    StoreError,
    brief,
    library,
)

REPEATS = 5
"""How often one file is moved again that came in another size, or changed meanwhile, or was replaced at its place."""
WINDOW = 64
"""Files that are begun at a time, at most: fewer where the store refuses some. Those beyond the store's own number wait
for a thread, so that none waits for us.
"""
FAILURES = 8
"""Passing failures in a row, without a file that got through, after which it is given up. Those of transfers that ran
at the same time are one.
"""
LONGEST_PAUSE = 30.0
UNREACHED = 30.0
"""Seconds from the beginning after which a store to fetch from is given up that was never reached: a network comes up a
little later than its host, or not at all.
"""
EVERY = 1.0
"""Seconds between two reports of progress."""
NOTES = 10.0
"""Seconds between two sentences about failures that may pass."""
CANCEL_SECONDS = 2.0
"""Seconds that cancelled transfers get to end."""
PART = f"{RESERVED}part"
"""Begins the names of files that are being written; nobody reads them."""
PIECE = 1 << 20
"""Bytes that are copied at a time."""
TAGS = (
    "ETag", "etag", "md5Hash", "md5", "checksum", "sha256", "blob_id", "mtime", "LastModified", "last_modified",
    "updated", "created",
)  # fmt: skip
"""What filesystems of fsspec tell of a file's version, the best first."""

Found = TypeVar("Found")


def open_store(uri: str, access: dict[str, Any]) -> Store:
    """The store at ``uri``. ``access``: ``region`` and ``endpoint`` of S3, both may be empty.

    Raises:
        Lacks: this Python has no library for it.
        StoreError: it can't be opened.
    """
    if uri.startswith("s3://"):
        return S3Store(uri, access)
    return FsspecStore(uri) if "://" in uri else DirectoryStore(uri)


def place_below(uri: str, name: str) -> str:
    """The place ``name`` below ``uri``, empty: itself; where it is no directory, everything under that prefix."""
    return f"{uri.rstrip('/')}/{name}".rstrip("/") + ("/" if "://" in uri else "")


def _regular(path: str, flags: int) -> int:
    """Opens a regular file: a pipe would wait for ever."""
    return only_regular(os.open(path, flags | os.O_NONBLOCK), path)


class DirectoryStore(Store):
    """A directory, or one file, of this host or of a mount. Links to files are files; links to directories, too, where
    they don't lead upwards.
    """

    def __init__(self, path: str) -> None:
        self.place = self._root = path
        self._count = 0

    def items(self, begin: str = "") -> Iterator[Item]:
        with self.explained():
            try:
                facts = os.stat(self._root)
            except (FileNotFoundError, NotADirectoryError):
                return
            if stat.S_ISREG(facts.st_mode):
                yield Item(os.path.basename(self._root), facts.st_size, tag_of(facts))
            else:
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
                    if real not in above and os.path.commonpath((real, above[0])) != real:
                        yield from self._inside(name, (*above, real))

    def _path(self, name: str) -> str:
        return self._root if os.path.isfile(self._root) else _below(self.place, self._root, name)

    def item(self, name: str) -> Item | None:
        with self.explained():
            try:
                facts = os.stat(self._path(name))
            except (FileNotFoundError, NotADirectoryError):
                return None
            return Item(name, facts.st_size, tag_of(facts)) if stat.S_ISREG(facts.st_mode) else None

    def open(self, name: str) -> Any:
        with self.explained():
            return open(self._path(name), "rb", opener=_regular)

    def write(self, name: str, data: bytes, only_new: bool = False) -> bool:
        with self.explained(), self._new(name) as part:
            with open(part, "wb") as file:
                file.write(data)
                _to_disk(file.fileno())
            return _placed(part, _below(self.place, self._root, name), only_new)

    def put(self, file: BinaryIO, name: str, on_bytes: OnBytes) -> None:
        with self.explained(), self._new(name) as part:
            _copy(file, part, on_bytes)
            with open(part, "rb") as written:
                _to_disk(written.fileno())
            _placed(part, _below(self.place, self._root, name), False)

    @contextlib.contextmanager
    def _new(self, name: str) -> Iterator[str]:
        """The path under which the file ``name`` is written, in the same folder; nothing stays there."""
        folder = os.path.dirname(_below(self.place, self._root, name))
        if not os.path.isdir(folder):
            os.makedirs(folder, exist_ok=True)
        self._count += 1
        part = os.path.join(folder, f"{PART}-{os.getpid()}-{threading.get_ident()}-{self._count}")
        try:
            yield part
        finally:
            with contextlib.suppress(OSError):
                os.unlink(part)

    def get(self, item: Item, path: str, on_bytes: OnBytes) -> None:
        source = self._path(item.name)
        with self.explained(), open(source, "rb") as file:
            _copy(file, path, on_bytes)
            if item.tag and tag_of(os.stat(source)) != item.tag:
                raise StoreError(f"{source} was replaced while it was being read", passing=True)

    def delete(self, names: Iterable[str]) -> None:
        folders = set()
        with self.explained():
            for name in names:
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(_below(self.place, self._root, name))
                folders.add(os.path.dirname(name))
            for folder in sorted(folders, key=len, reverse=True):
                with contextlib.suppress(OSError):  # something is in it
                    while folder:
                        os.rmdir(_below(self.place, self._root, folder))
                        folder = os.path.dirname(folder)


def tag_of(facts: os.stat_result) -> str:
    """The version of a local file."""
    return f"{facts.st_size}-{facts.st_mtime_ns}-{facts.st_ino}"


def _below(place: str, root: str, name: str) -> str:
    try:
        return below(root, name)
    except ForeignName as error:
        raise StoreError(f"{place}: {error}") from None


def _copy(file: BinaryIO, path: str, on_bytes: OnBytes) -> None:
    with open(path, "wb") as target:
        while piece := file.read(PIECE):
            target.write(piece)
            on_bytes(len(piece))


def _placed(part: str, path: str, only_new: bool) -> bool:
    """Gives a whole file its name; False: ``only_new``, and the name is taken."""
    if not only_new:
        os.replace(part, path)
    else:
        try:
            os.link(part, path)
        except FileExistsError:
            return False
        except OSError as error:
            if error.errno not in (errno.EPERM, errno.ENOTSUP, errno.ENOSYS):
                raise
            try:  # a file system without links
                os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666))
            except FileExistsError:
                return False
            os.replace(part, path)
    with contextlib.suppress(OSError):  # the name is there after a power failure, too
        fd = os.open(os.path.dirname(path), os.O_RDONLY)
        try:
            _to_disk(fd)
        finally:
            os.close(fd)
    return True


def _to_disk(fd: int) -> None:
    try:
        os.fsync(fd)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):  # file systems that know no fsync
            raise


class FsspecStore(Store):
    """Any other URI, by fsspec."""

    def __init__(self, uri: str) -> None:
        self.place = uri
        library("fsspec")
        try:
            self._fs, root = library("fsspec.core").url_to_fs(uri)
        except ImportError as error:
            raise Lacks(brief(error)) from None
        except ValueError as error:
            raise StoreError(f"{uri}: {brief(error)}") from None
        self._root = str(root).rstrip("/")

    def items(self, begin: str = "") -> Iterator[Item]:
        with self.explained():
            self._fs.invalidate_cache()
            try:
                info = self._fs.info(self._root)
            except FileNotFoundError:
                return
            if info["type"] == "file":
                yield _item(self._root.rpartition("/")[2], info)
                return
            for path, found in self._fs.find(self._root, withdirs=False, detail=True).items():
                name = path[len(self._root) :].lstrip("/")
                if not name.endswith("/"):  # a folder's mark
                    yield _item(name, found)

    def item(self, name: str) -> Item | None:
        with self.explained():
            self._fs.invalidate_cache()
            try:
                return _item(name, self._fs.info(self._source(name)))
            except FileNotFoundError:
                return None

    def _path(self, name: str) -> str:
        return _below(self.place, self._root, name)

    def _source(self, name: str) -> str:
        return self._root if self._fs.isfile(self._root) else self._path(name)

    def open(self, name: str) -> Any:
        with self.explained():
            return self._fs.open(self._source(name), "rb")

    def write(self, name: str, data: bytes, only_new: bool = False) -> bool:
        with self.explained():
            self._make_folder(name)
            if only_new:
                try:
                    self._fs.pipe_file(self._path(name), data, mode="create")
                    return True
                except FileExistsError:
                    return False
                except (TypeError, ValueError, NotImplementedError):  # a package that is older than the mode
                    pass
            self._fs.pipe_file(self._path(name), data)
            return True

    def _make_folder(self, name: str) -> None:
        self._fs.makedirs(self._path(name).rpartition("/")[0], exist_ok=True)

    def delete(self, names: Iterable[str]) -> None:
        with self.explained():
            for name in names:
                with contextlib.suppress(FileNotFoundError):
                    self._fs.rm_file(self._path(name))

    def get(self, item: Item, path: str, on_bytes: OnBytes) -> None:
        with self.explained():
            self._fs.get_file(self._source(item.name), path)
            on_bytes(max(0, item.size))

    def put(self, file: BinaryIO, name: str, on_bytes: OnBytes) -> None:
        with self.explained():
            self._make_folder(name)
            folder = next(each for each in ("/proc/self/fd", "/dev/fd") if os.path.isdir(each))
            self._fs.put_file(f"{folder}/{file.fileno()}", self._path(name))  # the open file, whatever its name is now
            on_bytes(os.fstat(file.fileno()).st_size)


def _item(name: str, info: dict[str, Any]) -> Item:
    tag = next((info[key] for key in TAGS if info.get(key)), "")
    size = info.get("size")
    return Item(name, UNKNOWN if size is None else int(size), str(tag))


# -- many at a time --


class Progress(NamedTuple):
    """How far it is: bytes and files of all that are to be moved, and for how many seconds."""

    at: int
    size: int
    files: int
    of: int
    seconds: float


class Terms(NamedTuple):
    """Who hears of transfers, and what ends them. ``note`` gets a sentence about what is tried again. ``until``: when
    they are given up, by the monotonic clock. A program that moves files is stopped by its end, which nothing delays.
    """

    tell: Callable[[Progress], None] = lambda _: None
    note: Callable[[str], None] = lambda _: None
    until: float | None = None


_emitting = threading.Lock()


def emit(**facts: Any) -> None:
    """Says facts to who started this program: one line of JSON on stdout, whole whichever threads write."""
    with _emitting:
        sys.stdout.write(json.dumps(facts) + "\n")
        sys.stdout.flush()


class Pause:
    """A pause after failures in a row, each time twice as long. ``resume_at``: its end, by the monotonic clock."""

    def __init__(self) -> None:
        self.in_a_row, self.resume_at = 0, 0.0

    def succeeded(self) -> None:
        self.in_a_row, self.resume_at = 0, 0.0

    def failed(self, longest: float) -> None:
        self.in_a_row += 1
        self.resume_at = time.monotonic() + min(0.25 * 2.0 ** min(self.in_a_row, 20), longest)


class Tries:
    """When something that failed is tried again. ``count``: of failures, since the beginning. ``unreached``: seconds
    after which a store that never answered is given up; what is sent would be lost then, and has no such limit.
    """

    def __init__(self, note: Callable[[str], None], unreached: float = UNREACHED) -> None:
        self._note, self._unreached = note, unreached
        self._pause, self._noted_at = Pause(), -NOTES
        self._began, self._reached = time.monotonic(), False
        self.count = 0

    @property
    def resume_at(self) -> float:
        return self._pause.resume_at

    def succeeded(self) -> None:
        self._pause.in_a_row, self._reached = 0, True  # others may still be refused: the pause stays

    def failed(self, error: StoreError) -> None:
        """Raises where no further try may help."""
        if not error.passing:
            raise error
        now = time.monotonic()
        self._reached = self._reached or not error.unreachable
        if not self._reached and now - self._began >= self._unreached:
            raise StoreError(f"nothing answered within {now - self._began:.0f} s: {error}", passing=True)
        self.count += 1
        self._pause.failed(LONGEST_PAUSE)
        if self._pause.in_a_row >= FAILURES:
            raise StoreError(f"{self._pause.in_a_row} tries failed in a row, the last with: {error}", passing=True)
        if now - self._noted_at >= NOTES:
            self._noted_at = now
            how_often = f"for {self._unreached:.0f} s"
            if self._reached or self._unreached == math.inf:
                how_often = f"({self._pause.in_a_row} of {FAILURES - 1} times)"
            self._note(f"{error}; it is tried again {how_often}")


def patiently(call: Callable[[], Found], terms: Terms) -> Found:
    """What ``call`` gives, which is called again where its failure may pass.

    Raises:
        StoreError: it doesn't pass.
    """
    tries = Tries(terms.note)
    while True:
        try:
            return call()
        except StoreError as error:
            tries.failed(error)
            if terms.until is not None and tries.resume_at >= terms.until:
                raise
        time.sleep(max(0.0, tries.resume_at - time.monotonic()))


class Crowd:
    """Moves many files of a store, each in a thread. A failure that may pass is tried again, after a pause of all, and
    with half as many at a time: a store that throttles refuses many at once.
    """

    def __init__(self, store: Store, terms: Terms, unreached: float = UNREACHED) -> None:
        self._store, self._terms, self._tries = store, terms, Tries(terms.note, unreached)
        self._begun: queue.SimpleQueue[int | None] = queue.SimpleQueue()
        self._ended: queue.SimpleQueue[tuple[int, Exception | None]] = queue.SimpleQueue()
        self._bytes: collections.Counter[int] = collections.Counter()
        self._threads, self._is_over = 0, False

    def run(self, sizes: Sequence[int], move: Callable[[int, OnBytes], None]) -> None:
        """Calls ``move`` for each file's number, and again where it raises :class:`Again` or a failure that may pass.

        Raises:
            StoreError: a file can't be moved, or there is no more time.
        """
        running = set[int]()
        try:
            self._run(sizes, move, running)
        except BaseException:
            self._is_over = True
            self._store.cancel()
            self._let_end(running)
            raise
        finally:
            for _ in range(self._threads):
                self._begun.put(None)

    def _run(self, sizes: Sequence[int], move: Callable[[int, OnBytes], None], running: set[int]) -> None:
        waiting, total, tries = collections.deque(range(len(sizes))), sum(sizes), self._tries
        began = reported = time.monotonic()
        files, done, window, rounds = 0, 0, WINDOW, dict[int, int]()
        repeats: collections.Counter[int] = collections.Counter()
        while waiting or running:
            now = time.monotonic()
            while waiting and len(running) < window and now >= tries.resume_at:
                number = waiting.popleft()
                rounds[number] = tries.count
                running.add(number)
                self._begin(number, len(running), move)
            number, error = self._next(now, bool(waiting))
            if number >= 0:
                running.discard(number)
                self._bytes.pop(number, None)
                if error is None:
                    files, done, window = files + 1, done + sizes[number], min(WINDOW, window + 1)
                    tries.succeeded()
                else:
                    waiting.append(number)
                if isinstance(error, Again):
                    repeats[number] += 1
                    if repeats[number] > REPEATS:
                        raise StoreError(f"{error}, {REPEATS} times in a row")
                elif isinstance(error, StoreError) and rounds[number] == tries.count:
                    tries.failed(error)
                    window = max(1, window // 2)
                elif error is not None and not getattr(error, "passing", False):
                    raise error
            now = time.monotonic()
            if self._terms.until is not None and now >= self._terms.until:
                raise StoreError("there was no more time", passing=True)
            if now - reported >= EVERY:
                reported = now
                at = min(total, done + sum(self._bytes.values()))
                self._terms.tell(Progress(at, total, files, len(sizes), now - began))

    def _begin(self, number: int, running: int, move: Callable[[int, OnBytes], None]) -> None:
        if self._threads < min(running, self._store.at_once):
            self._threads += 1
            threading.Thread(target=self._work, args=(move,), daemon=True).start()
        self._begun.put(number)

    def _work(self, move: Callable[[int, OnBytes], None]) -> None:
        while (number := self._begun.get()) is not None:
            try:
                move(number, self._counter(number))
            except Exception as error:
                self._ended.put((number, error))
            else:
                self._ended.put((number, None))

    def _counter(self, number: int) -> OnBytes:
        self._bytes[number] = 0

        def count(amount: int) -> None:
            if self._is_over:
                raise StoreError("it was cancelled", passing=True)
            self._bytes[number] += amount

        return count

    def _next(self, now: float, is_waiting: bool) -> tuple[int, Exception | None]:
        """The next file whose transfer has ended, and how; -1: another thing is due."""
        ends = [now + EVERY]
        if self._terms.until is not None:
            ends.append(self._terms.until)
        if is_waiting and self._tries.resume_at > now:
            ends.append(self._tries.resume_at)
        try:
            return self._ended.get(timeout=max(0.0, min(ends) - now))
        except queue.Empty:
            return -1, None

    def _let_end(self, running: set[int]) -> None:
        """Waits a little for cancelled transfers; a request that hangs doesn't hold us."""
        until = time.monotonic() + CANCEL_SECONDS
        while running and (left := until - time.monotonic()) > 0:
            try:
                running.discard(self._ended.get(timeout=left)[0])
            except queue.Empty:
                return


# -- to a directory --


class Totals(NamedTuple):
    """What there is: files and bytes; and how many of both were here already."""

    files: int = 0
    bytes: int = 0
    kept_files: int = 0
    kept_bytes: int = 0


class Record:
    """What is known of files, by their names; it stands in a file that is written as they come, or go."""

    def __init__(self, path: str) -> None:
        self.known: dict[str, tuple[Any, ...]] = {}
        with contextlib.suppress(FileNotFoundError), open(path, encoding="utf-8", errors="surrogateescape") as file:
            for line in file:
                with contextlib.suppress(ValueError, TypeError):  # the last line of a run that was killed
                    name, *facts = json.loads(line)
                    self.known[name] = tuple(facts)
        self._lock = threading.Lock()
        self._file = open(path, "a", encoding="utf-8", errors="surrogateescape")  # noqa: SIM115
        self._file.write("\n")

    def add(self, name: str, *facts: Any) -> None:
        with self._lock:
            self.known[name] = facts
            self._file.write(json.dumps([name, *facts]) + "\n")
            self._file.flush()

    def close(self) -> None:
        self._file.close()


class Target:
    """A directory into which files are brought. What is half there lies in a folder beside it, or inside of it where
    it is a mount; a record of what came is kept there: of each file its tag, size and time.
    """

    def __init__(self, directory: str) -> None:
        os.makedirs(directory, exist_ok=True)
        self.tree, folder = Below(directory), notes_of(directory, make=True)
        self.parts = os.path.join(folder, "parts")
        shutil.rmtree(self.parts, ignore_errors=True)
        os.makedirs(self.parts)
        self.record = Record(os.path.join(folder, "record"))

    def has(self, item: Item) -> bool:
        """Whether this version of ``item`` is here, as it came."""
        found = self.record.known.get(item.name)
        if not item.tag or found is None or found[:2] != (item.tag, item.size):
            return False
        try:
            facts = self.tree.facts(item.name)
        except OSError:
            return False
        return facts is not None and (facts.st_size, facts.st_mtime_ns) == found[1:]

    def place(self, part: str, item: Item) -> None:
        """Moves a whole file to where it belongs."""
        facts = os.stat(part)
        self.tree.put(part, item.name)
        self.record.add(item.name, item.tag, facts.st_size, facts.st_mtime_ns)

    def forget_others(self, names: Iterable[str]) -> None:
        """Removes what an earlier run brought and the store no longer has."""
        for name in set(self.record.known) - set(names):
            with contextlib.suppress(OSError, ForeignName):  # a folder now, or a line that isn't ours
                self.tree.remove(name)

    def close(self) -> None:
        self.record.close()
        shutil.rmtree(self.parts, ignore_errors=True)


def checked(items: Iterable[Item], place: str) -> list[Item]:
    """The items in the order of their names; a StoreError names one that can't be a file beside the others."""
    found = sorted(items, key=lambda item: item.name)
    folders: set[str] = set()
    for item in found:
        try:
            parts = parts_of(item.name)
        except ForeignName as error:
            raise StoreError(f"{place}: {error}") from None
        folders.update("/".join(parts[:at]) for at in range(1, len(parts)))
    for item in found:
        if item.name in folders:
            raise StoreError(f"{place}: {item.name!r} is a file, and a folder of others: a directory can't have both")
    return found


def size_of(items: Iterable[Item]) -> int:
    """Bytes of ``items`` together, as far as their store tells."""
    return sum(max(0, item.size) for item in items)


def free(directory: str) -> int:
    disk = os.statvfs(directory)
    return disk.f_bavail * disk.f_frsize


def get_all(store: Store, items: Sequence[Item], directory: str, terms: Terms) -> Totals:
    """Brings ``items`` to ``directory``. Files that an earlier run brought and that haven't changed stay.

    Raises:
        StoreError: they can't be brought; those that were stay for the next run.
        OSError: this host's disk can't take them.
    """
    target = Target(directory)
    try:
        target.forget_others(item.name for item in items)
        missing = [item for item in items if not target.has(item)]
        if (size := size_of(missing)) > (room := free(target.parts)):
            raise StoreError(
                f"{store.place} has {size:,} bytes that aren't on this host yet, and its disk has room for {room:,} "
                f"({target.parts}): use a larger disk, or ;sharded where each host needs only its part"
            )
        replaced: collections.Counter[int] = collections.Counter()
        begun = set[int]()

        def move(number: int, on_bytes: OnBytes) -> None:
            if number in begun:  # it failed before: it may have been replaced
                missing[number] = _listed_again(store, missing[number], replaced, number)
            begun.add(number)
            item, part = missing[number], os.path.join(target.parts, str(number))
            store.get(item, part, on_bytes)
            if item.size not in (UNKNOWN, came := os.path.getsize(part)):
                raise Again(
                    f"{store.place}: {item.name} has {item.size:,} bytes in the store's list, and {came:,} came"
                )
            target.place(part, item)

        kept = Totals(len(items), size_of(items), len(items) - len(missing), size_of(items) - size)
        Crowd(store, terms).run([max(0, item.size) for item in missing], move)
        return kept
    finally:
        target.close()


def _listed_again(store: Store, item: Item, replaced: collections.Counter[int], number: int) -> Item:
    found = store.item(item.name)
    if found is None:
        raise StoreError(f"{store.place}: {item.name} was deleted while it was being read")
    replaced[number] += found.tag != item.tag
    if replaced[number] >= REPEATS:
        raise StoreError(f"{store.place}: {item.name} is replaced again and again while it is being read")
    return found


# -- from this host --


def version_of(facts: os.stat_result) -> tuple[int, int, int]:
    """Size, time of the last change (ns), inode: differs when the content has changed."""
    return facts.st_size, facts.st_mtime_ns, facts.st_ino


class Outgoing(NamedTuple):
    """A file of this host that goes to a store as ``name``, and its bytes. ``open`` gives it, at each call anew."""

    open: Callable[[], BinaryIO]
    name: str
    size: int


def put_all(store: Store, files: Sequence[Outgoing], terms: Terms) -> Totals:
    """Sends ``files``. One that changes meanwhile is sent again.

    Raises:
        StoreError: they can't be sent.
    """

    def move(number: int, on_bytes: OnBytes) -> None:
        put_same(store, files[number], on_bytes)

    Crowd(store, terms, unreached=math.inf).run([file.size for file in files], move)
    return Totals(len(files), sum(file.size for file in files))


def put_same(store: Store, outgoing: Outgoing, on_bytes: OnBytes) -> None:
    """Sends a file, whose version is the same before and after.

    Raises:
        Again: it has changed meanwhile, or another has its name.
        StoreError: it can't be sent.
    """
    try:
        with outgoing.open() as file:
            before = version_of(os.fstat(file.fileno()))
            store.put(file, outgoing.name, on_bytes)
            after = version_of(os.fstat(file.fileno()))
        with outgoing.open() as file:
            now = version_of(os.fstat(file.fileno()))
    except (OSError, ForeignName) as error:
        words = error.strerror if isinstance(error, OSError) else str(error)
        raise StoreError(f"{outgoing.name}: {words}", local=True) from None
    if not before == after == now:
        raise Again(f"{outgoing.name} was changed while it was sent")
