"""Many files between a store and this host's disk, several at once: whole or not at all, and resumed after a cut.

Runs in a Python that may not have musterpoint.
"""

from __future__ import annotations

import collections
import json
import math
import os
import shutil
from typing import Any, Callable, Iterable, NamedTuple, Sequence

from musterpoint.embedded.programs.crowd import Crowd, Job, Note, Tell
from musterpoint.embedded.programs.stores import Item, Store, StoreError

LONGEST_NAME = 255
CHANGES = 5
"""How often one file may be replaced while it is being read."""


class Totals(NamedTuple):
    """What there is: files and bytes; and how many of both were here already."""

    files: int = 0
    bytes: int = 0
    kept_files: int = 0
    kept_bytes: int = 0


class Record:
    """Which versions of which files are here, in a file that is written as they come."""

    def __init__(self, path: str) -> None:
        self._path = path
        self.known: dict[str, tuple[str, int, int]] = {}
        try:
            with open(path, encoding="utf-8", errors="surrogateescape") as file:
                for line in file:
                    try:
                        name, tag, size, changed = json.loads(line)
                    except ValueError:  # the last line of a run that was killed
                        continue
                    self.known[name] = (tag, size, changed)
        except FileNotFoundError:
            pass
        self._file = open(path, "a", encoding="utf-8", errors="surrogateescape")  # noqa: SIM115
        self._file.write("\n")

    def add(self, name: str, tag: str, path: str) -> None:
        facts = os.stat(path)
        self.known[name] = (tag, facts.st_size, facts.st_mtime_ns)
        self._file.write(json.dumps([name, *self.known[name]]) + "\n")
        self._file.flush()

    def has(self, item: Item, path: str) -> bool:
        """Whether ``path`` is this version of ``item``, as it came."""
        found = self.known.get(item.name)
        if not item.tag or found is None or found[:2] != (item.tag, item.size):
            return False
        try:
            facts = os.stat(path)
        except OSError:
            return False
        return (facts.st_size, facts.st_mtime_ns) == found[1:]

    def close(self) -> None:
        self._file.close()


class Target:
    """A directory into which files are brought. What is half there lies in a folder beside it, or inside of it where
    it is a mount; a record of what came is kept there.
    """

    def __init__(self, directory: str) -> None:
        self.directory = directory
        os.makedirs(directory, exist_ok=True)
        self.folder = state_folder(directory)
        self.parts = os.path.join(self.folder, "parts")
        shutil.rmtree(self.parts, ignore_errors=True)
        os.makedirs(self.parts)
        self.record = Record(os.path.join(self.folder, "record"))
        self._made = {directory}

    def path(self, name: str) -> str:
        return os.path.join(self.directory, name)

    def part(self, number: int) -> str:
        return os.path.join(self.parts, str(number))

    def place(self, part: str, name: str) -> str:
        """Moves a whole file to where it belongs."""
        path = self.path(name)
        self.make_folder(path)
        os.replace(part, path)
        return path

    def make_folder(self, path: str) -> None:
        folder = os.path.dirname(path)
        if folder not in self._made:
            os.makedirs(folder, exist_ok=True)
            self._made.add(folder)

    def forget_others(self, names: Iterable[str]) -> None:
        """Removes what an earlier run brought and the store no longer has."""
        for name in set(self.record.known) - set(names):
            try:
                os.unlink(self.path(name))
            except OSError:
                pass

    def close(self) -> None:
        self.record.close()
        shutil.rmtree(self.parts, ignore_errors=True)


def state_folder(directory: str) -> str:
    """Where notes about ``directory`` and halves of its files lie, in the same file system."""
    above, name = os.path.split(os.path.abspath(directory))
    inside = os.path.ismount(directory) or not os.access(above, os.W_OK | os.X_OK)
    return os.path.join(directory, ".muster-part") if inside else os.path.join(above, f".muster-{name}")


def free(directory: str) -> int:
    disk = os.statvfs(directory)
    return disk.f_bavail * disk.f_frsize


def checked(items: Iterable[Item], place: str) -> list[Item]:
    """The items in the order of their names; a StoreError names one that can't be a file beside the others."""
    found = sorted(items, key=lambda item: item.name)
    folders: set[str] = set()
    for item in found:
        parts = item.name.split("/")
        if {"", ".", ".."} & set(parts) or "\0" in item.name:
            raise StoreError(f"{place}: {item.name!r} can't be the name of a file")
        if max(len(os.fsencode(part)) for part in parts) > LONGEST_NAME:
            raise StoreError(f"{place}: {item.name[:80]!r}... is too long for the name of a file")
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
        missing: list[Item] = []
        for item in items:
            if not target.record.has(item, target.path(item.name)):
                missing.append(item)
        kept = len(items) - len(missing)
        size = sum(item.size for item in items)
        kept_bytes = size - sum(item.size for item in missing)
        _check_space(target.parts, missing, store.place)
        _bring(store, missing, target, tell, note)
        return Totals(len(items), size, kept, kept_bytes)
    finally:
        target.close()


def _check_space(directory: str, items: list[Item], place: str) -> None:
    size = sum(item.size for item in items)
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

    def ended(job: Job) -> bool:
        item, part = current[job.number], target.part(job.number)
        if os.path.getsize(part) != item.size:
            return False
        path = target.place(part, item.name)
        target.record.add(item.name, item.tag, path)
        return True

    jobs = [Job(number, item.name, item.size) for number, item in enumerate(items)]
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

    def ended(job: Job) -> bool:
        return version(files[job.number].path) == versions[job.number]

    jobs = [Job(number, file.name, file.size) for number, file in enumerate(files)]
    Crowd(tell, note, unreached=math.inf).run(jobs, begin, ended, store.cancel, until)
    return Totals(len(files), sum(file.size for file in files))


def files_below(directory: str, prefix: str = "") -> list[Outgoing]:
    """Every file below ``directory``, to be sent under the same names below ``prefix``."""
    found = []
    for folder, folders, names in os.walk(directory):
        folders.sort()
        for name in sorted(names):
            path = os.path.join(folder, name)
            try:
                size = os.stat(path).st_size
            except OSError:  # a link to nothing
                continue
            if os.path.isfile(path):
                found.append(Outgoing(path, prefix + os.path.relpath(path, directory), size))
    return found
