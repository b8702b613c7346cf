"""Many files between a store and this host's disk, several at once: whole or not at all, and resumed after a cut.

Runs in a Python that may not have musterpoint.
"""

from __future__ import annotations

import collections
import contextlib
import json
import math
import os
import shutil
import tempfile
from typing import Any, Callable, Iterable, Iterator, NamedTuple, Sequence

from musterpoint.base.below import RESERVED, Below, ForeignName, leads_out, notes_of, parts_of
from musterpoint.embedded.programs.crowd import Crowd, Job, Note, Tell
from musterpoint.embedded.programs.stores import UNKNOWN, Item, Store, StoreError

SCRATCH = f"{RESERVED}scratch-"
"""Begins the names of folders in which something is packed."""
CHANGES = 5
"""How often one file may be replaced while it is being read."""


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
        try:
            with open(path, encoding="utf-8", errors="surrogateescape") as file:
                for line in file:
                    try:
                        name, *facts = json.loads(line)
                    except ValueError:  # the last line of a run that was killed
                        continue
                    self.known[name] = tuple(facts)
        except FileNotFoundError:
            pass
        self._file = open(path, "a", encoding="utf-8", errors="surrogateescape")  # noqa: SIM115
        self._file.write("\n")

    def add(self, name: str, *facts: Any) -> None:
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
        self.tree = Below(directory)
        self.folder = notes_of(directory)
        self.parts = os.path.join(self.folder, "parts")
        shutil.rmtree(self.parts, ignore_errors=True)
        os.makedirs(self.parts)
        self.record = Record(os.path.join(self.folder, "record"))

    def has(self, item: Item) -> bool:
        """Whether this version of ``item`` is here, as it came."""
        found = self.record.known.get(item.name)
        if not item.tag or found is None or found[:2] != (item.tag, item.size):
            return False
        try:
            facts = os.stat(self.tree.path(item.name))
        except OSError:
            return False
        return (facts.st_size, facts.st_mtime_ns) == found[1:]

    def part(self, number: int) -> str:
        return os.path.join(self.parts, str(number))

    def place(self, part: str, item: Item) -> None:
        """Moves a whole file to where it belongs."""
        self.tree.put(part, item.name)
        facts = os.stat(self.tree.path(item.name))
        self.record.add(item.name, item.tag, facts.st_size, facts.st_mtime_ns)

    def forget_others(self, names: Iterable[str]) -> None:
        """Removes what an earlier run brought and the store no longer has."""
        for name in set(self.record.known) - set(names):
            with contextlib.suppress(OSError, ForeignName):  # a folder now, or a line that isn't ours
                self.tree.remove(name)

    def close(self) -> None:
        self.record.close()
        shutil.rmtree(self.parts, ignore_errors=True)


def free(directory: str) -> int:
    disk = os.statvfs(directory)
    return disk.f_bavail * disk.f_frsize


def checked(items: Iterable[Item], place: str) -> list[Item]:
    """The items in the order of their names; a StoreError names one that can't be a file beside the others."""
    found = sorted(items, key=lambda item: item.name)
    folders: set[str] = set()
    for item in found:
        try:
            parts = parts_of(item.name)
        except ForeignName as error:
            raise StoreError(f"{place}: {error}") from None
        for at in range(1, len(parts)):
            folders.add("/".join(parts[:at]))
    for item in found:
        if item.name in folders:
            raise StoreError(f"{place}: {item.name!r} is a file, and a folder of others: a directory can't have both")
    return found


def sharded(items: Sequence[Item], place: int, hosts: int) -> list[Item]:
    """The files that the host at ``place`` gets: every ``hosts``-th of them, as ShardedByS3Key."""
    return list(items)[place::hosts]


def fetch_all(store: Store, items: Sequence[Item], directory: str, tell: Tell, note: Note) -> Totals:
    """Brings ``items`` to ``directory``. Files that an earlier run brought and that haven't changed stay.

    Raises:
        StoreError: they can't be brought; those that were stay for the next run.
        OSError: this host's disk can't take them.
    """
    target = Target(directory)
    try:
        target.forget_others(item.name for item in items)
        missing = [item for item in items if not target.has(item)]
        kept = len(items) - len(missing)
        kept_bytes = size_of(items) - size_of(missing)
        _check_space(target.parts, missing, store.place)
        _bring(store, missing, target, tell, note)
        return Totals(len(items), size_of(items), kept, kept_bytes)
    finally:
        target.close()


def size_of(items: Iterable[Item]) -> int:
    """Bytes of ``items`` together, as far as their store tells."""
    return sum(max(0, item.size) for item in items)


def _check_space(directory: str, items: list[Item], place: str) -> None:
    size = size_of(items)
    if size > (room := free(directory)):
        raise StoreError(
            f"{place} has {size:,} bytes that aren't on this host yet, and its disk has room for {room:,} "
            f"({directory}): use a larger disk, or ;sharded where each host needs only its part"
        )


def _bring(store: Store, items: list[Item], target: Target, tell: Tell, note: Note) -> None:
    current = list(items)
    changes: collections.Counter[int] = collections.Counter()

    def begin(job: Job, on_bytes: Callable[[int], None], on_done: Callable[[Any], None]) -> None:
        def done(error: Any) -> None:
            on_done(None if error is None else store.explain(error))

        if changes[job.number] < 0:  # it failed before: it may have been replaced
            found = store.item(job.name)
            if found is None:
                on_done(StoreError(f"{store.place}: {job.name} was deleted while it was being read"))
                return
            if found.tag != current[job.number].tag:
                changes[job.number] -= 1
                if changes[job.number] < -CHANGES:
                    on_done(StoreError(f"{store.place}: {job.name} is replaced again and again while it is being read"))
                    return
            current[job.number] = found
        else:
            changes[job.number] = -1
        store.fetch(current[job.number], target.part(job.number), on_bytes, done)

    def ended(job: Job) -> str:
        item, part = current[job.number], target.part(job.number)
        if item.size not in (UNKNOWN, size := os.path.getsize(part)):
            return f"{store.place}: {item.name} has {item.size:,} bytes in the store's list, and {size:,} came"
        target.place(part, item)
        return ""

    jobs = [Job(number, item.name, max(0, item.size)) for number, item in enumerate(items)]
    Crowd(tell, note).run(jobs, begin, ended, store.cancel)


class Outgoing(NamedTuple):
    """A file of this host that goes to a store as ``name``."""

    path: str
    name: str
    size: int


def send_all(store: Store, files: Sequence[Outgoing], tell: Tell, note: Note, until: float | None = None) -> Totals:
    """Sends ``files``. One that changes meanwhile is sent again.

    Raises:
        StoreError: they can't be sent, or not until ``until`` (monotonic).
    """
    versions: dict[int, tuple[int, int]] = {}

    def version(path: str) -> tuple[int, int]:
        facts = os.stat(path)
        return facts.st_size, facts.st_mtime_ns

    def begin(job: Job, on_bytes: Callable[[int], None], on_done: Callable[[Any], None]) -> None:
        path = files[job.number].path

        def done(error: Any) -> None:
            on_done(None if error is None else store.explain(error))

        try:
            versions[job.number] = version(path)
        except OSError as error:
            on_done(StoreError(f"{path}: {error.strerror}", local=True))
            return
        store.send(path, job.name, on_bytes, done)

    def ended(job: Job) -> str:
        path = files[job.number].path
        return "" if version(path) == versions[job.number] else f"{path} was changed while it was sent"

    jobs = [Job(number, file.name, file.size) for number, file in enumerate(files)]
    Crowd(tell, note, unreached=math.inf).run(jobs, begin, ended, store.cancel, until)
    return Totals(len(files), sum(file.size for file in files))


def files_below(directory: str, note: Note = lambda _: None) -> list[Outgoing]:
    """Every file below ``directory``, to be sent under the same name. A link counts as the file, or folder, that it
    leads to below the directory; one that leads out of it is left out, which ``note`` hears.
    """
    return list(_files_of(os.path.realpath(directory), "", (), note))


def _files_of(root: str, folder: str, above: tuple[str, ...], note: Note) -> Iterator[Outgoing]:
    real = os.path.realpath(os.path.join(root, folder))
    for entry in sorted(os.scandir(real), key=lambda each: each.name):
        name = os.path.join(folder, entry.name)
        if entry.is_symlink() and leads_out(entry.path, root):
            note(left_out(root, name, entry.path))
        elif entry.is_file():
            yield Outgoing(os.path.realpath(entry.path), name, entry.stat().st_size)
        elif entry.is_dir() and os.path.realpath(entry.path) not in (*above, real):
            yield from _files_of(root, name, (*above, real), note)


def link_inside(root: str, link: str) -> str | None:
    """The target of ``link``, relative, if it leads to something below ``root`` (a real path); None: it leads out."""
    if leads_out(link, root):
        return None
    target = os.readlink(link)
    return target if not os.path.isabs(target) else os.path.relpath(os.path.realpath(link), os.path.dirname(link))


def left_out(root: str, name: str, link: str) -> str:
    return f"{os.path.join(root, name)} is left out: it is a link to {os.readlink(link)}, which is outside of {root}"


@contextlib.contextmanager
def scratch(place: str) -> Iterator[str]:
    """A folder of this process alone in ``place``; it is removed at the end, and those of killed processes are now."""
    folder = tempfile.mkdtemp(prefix=SCRATCH, dir=place)
    try:
        with _locked(folder) as is_ours:
            assert is_ours
            for entry in list(os.scandir(place)):
                if entry.name.startswith(SCRATCH) and entry.path != folder and entry.is_dir(follow_symlinks=False):
                    with contextlib.suppress(OSError), _locked(entry.path) as is_dead:
                        if is_dead:
                            shutil.rmtree(entry.path, ignore_errors=True)
            yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def _locked(folder: str) -> Iterator[bool]:
    """Whether the folder's lock could be had; a process holds it as long as it lives."""
    import fcntl  # which Windows lacks

    fd = os.open(folder, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        yield False
    else:
        yield True
    finally:
        os.close(fd)
