"""Keeps the checkpoints of a directory at a place of a store: what has become whole goes there, beside the ranks.

A program of its own. Lines on stdin, each a word and JSON: ``part`` (another host's), ``marked`` (the first host's word
that a checkpoint is whole), ``ended`` (a host has no more), ``lost`` (a host is gone), ``attempt`` (the job's next one
begins), ``finish``. What a keeper before it was told is in the request. Facts go to stdout, one JSON object a line. It
ends when stdin does. Its failures end nothing: it tries again, and says at the end what didn't get there.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import re
import shutil
import signal
import sys
import threading
import time
from collections import Counter
from functools import partial
from typing import Any, BinaryIO, Callable, NoReturn

from musterpoint.base.below import Below, ForeignName, Tree, notes_of
from musterpoint.base.untrusted import printable, read_json
from musterpoint.embedded.programs.checkpoint_kinds import Unit, units_of
from musterpoint.embedded.programs.checkpoint_look import (
    MOST_JSON,
    Facts,
    Look,
    Version,
    World,
    file_of,
    link_version,
    look_at,
    owned,
)
from musterpoint.embedded.programs.checkpoint_manifest import Entry, Manifest, Part, Shelf, belongs, contradiction
from musterpoint.embedded.programs.checkpoint_prune import superseded
from musterpoint.embedded.programs.checkpoint_restore import SAID, SAID_FOLDER, digest_of
from musterpoint.embedded.programs.checkpoint_sights import Gathering, Sights, Whole
from musterpoint.embedded.programs.file_changes import DirectoryWatch
from musterpoint.embedded.programs.transfer import Outgoing, Pause, Terms, emit, put_all, version_of
from musterpoint.embedded.programs.transfer_s3 import Lacks, StoreError

SETTLE = 0.3
"""Seconds without a change after which the directory is looked at; a look comes after ten of them at the latest."""
LOOK_EVERY = 10.0
"""Seconds between two looks where the system doesn't tell of changes; six times that where it does."""
LONGEST_PAUSE = 60.0
REFUSALS = 3
"""Failures at the end that no waiting mends, after which it is given up."""
NICE = 5
MISSES = 2
"""How often in a row a checkpoint may change while it goes up before that is said."""
UNKEPT = 60.0
"""Seconds after which files of which nothing is whole are said."""
ABSENT: Version = (-2, 0, 0)
"""The version of a file of the newest checkpoint that isn't here as it is there."""
ATTEMPTS = "attempts"
"""The file of which checkpoint was saved in which attempt."""


def main(request: dict[str, Any]) -> int:
    """``request``: directory (its real path), uri, access, place, hosts, names (of the hosts), job, owner, keep, marks,
    ranks, first, own, attempt, run, began (by the system's clock, ns), told.
    """
    for name in ("SIGTERM", "SIGINT", "SIGHUP", "SIGIO"):
        signal.signal(getattr(signal, name), signal.SIG_IGN)
    try:
        os.nice(NICE)
    except OSError:
        pass
    try:
        keeper = Keeper(request)
    except Lacks as error:
        emit(lacks=str(error))
        os._exit(1)
    except StoreError as error:
        emit(problem=str(error))
        emit(over={"checkpoints": 0, "bytes": 0, "left": [], "problem": str(error)})
        os._exit(1)
    keeper.run()
    os._exit(0)  # without waiting for threads of the network


class Keeper:
    """One thread decides, one transfers; others put events into one queue."""

    def __init__(self, request: dict[str, Any]) -> None:
        self._request = request
        self._directory, self._place, self._hosts = request["directory"], request["place"], request["hosts"]
        self._leads, self._tree = self._place == 0, Tree(self._directory)
        self._world = World(request["ranks"], request["first"], request["own"])
        self._shelf = Shelf(request["uri"], request["access"])
        self._state = notes_of(self._directory, make=True)
        self._own = owned(self._directory)
        self._events: queue.Queue[tuple[str, Any]] = queue.Queue()
        self._run = os.urandom(4).hex()
        self._uploads = 0
        self._number: int | None = None
        self._known: dict[tuple[str, Version], Entry] = {}
        self._up: dict[str, Any] = {}
        path, several = os.path.join(self._state, ATTEMPTS), request["ranks"] > 1
        self._sights = Sights(path, request["run"], int(request["attempt"]), several)
        self._first: dict[str, Any] = {}
        self._found: dict[tuple[str, Any], bool] = {}
        self._uploading: Unit | None = None
        self._gathering = Gathering(self._hosts)
        self._unread: dict[tuple[int, str], str] = {}
        self._unreadable: Counter[str] = Counter()
        self._keys: dict[tuple[int, str], str] = {}
        self._is_unpublished = False
        self._refusals = 0
        self._misses, self._outside = 0, set[str]()
        self._pause, self._look_at = Pause(), 0.0
        self._changed_at: float | None = None
        self._until: float | None = None
        self._is_over = False
        self._problem, self._count, self._bytes = "", 0, 0
        self._quiet_at, self._has_finished = 0.0, False
        self._watches: list[DirectoryWatch] = []
        self._seen_at: float | None = None
        self._has_warned = False

    def run(self) -> None:
        shutil.rmtree(os.path.join(self._state, "held"), ignore_errors=True)
        said = os.path.join(self._state, SAID_FOLDER)
        os.makedirs(said, exist_ok=True)
        for word, about in self._request["told"]:
            self._handle(word, about) if word == "attempt" else self._events.put((word, about))
        threading.Thread(target=self._listen, daemon=True).start()
        self._watches = [
            DirectoryWatch(path, lambda: self._events.put(("changed", None))) for path in (self._directory, said)
        ]
        self._baseline()
        emit(watching=self._hears)
        while not self._is_finished():
            try:
                self._handle(*self._events.get(timeout=self._timeout()))
                while True:
                    self._handle(*self._events.get_nowait())
            except queue.Empty:
                pass
            now = time.monotonic()
            if self._is_due(now):
                self._look(now)
            if self._leads and now >= self._pause.resume_at:
                self._read_parts()
                self._settle_parts()
        self._leave()

    @property
    def _hears(self) -> bool:
        """Whether the system tells of changes."""
        return all(watch.works for watch in self._watches)

    def _baseline(self) -> None:
        """What is here at the start, just restored, doesn't go up again."""
        look = look_at(self._directory, self._world, own=self._own)
        units = units_of(look)
        self._first = {unit.name: unit.version for unit in units}
        try:
            newest = self._shelf.newest()
        except StoreError as error:
            self._failed(error)
            return
        self._number = newest.number if newest is not None else 0
        if newest is None or newest.job != self._request["job"]:
            return
        if self._leads:  # what no program saves again stays as it is
            self._gathering.begin_with(newest.parts)
        sizes = {(entry.path, entry.size) for entry in newest.files}
        # two hosts may have files of one name and size; where they are the same, our own is taken
        ours_last = sorted(newest.files, key=lambda entry: entry.place == self._place)
        there = {(entry.path, entry.sha256): entry for entry in ours_last}
        versions = dict[Entry, Version]()
        for path, facts in look.files_below("").items():
            try:
                if (path, facts.size) not in sizes:
                    continue
                with look.file(path) as file:
                    entry = there.get((path, digest_of(file)))
            except (OSError, ForeignName):
                continue
            if entry is not None:
                self._known[path, facts.version] = entry
                versions[entry] = facts.version
        for entry in newest.files:
            if entry.link and look.links.get(entry.path) == entry.link:
                self._known[entry.path, link_version(entry.link)] = entry
        for part in newest.parts:
            its = [entry for entry in part.files if entry.place == self._place and not entry.link]
            version = tuple((each.path, versions.get(each, ABSENT)) for each in its)
            self._sights.was_whole(part.name, version)
        self._sights.newest(units)
        for unit in units:
            if unit.files and all(each in self._known for each in unit.version):
                self._up[unit.name] = unit.version

    # -- events of other threads --

    def _listen(self) -> None:
        for line in sys.stdin:
            word, _, rest = line.strip().partition(" ")
            try:
                self._events.put((word, json.loads(rest) if rest else None))
            except ValueError:
                continue
        os._exit(0)

    def _handle(self, what: str, about: Any) -> None:
        now = time.monotonic()
        if what == "changed":
            self._changed_at = now if self._changed_at is None else self._changed_at
            self._quiet_at = now + SETTLE
        elif what == "uploaded":
            self._on_uploaded(*about)
        elif what == "part":
            self._unread[about["place"], about["name"]] = about["key"]
        elif what == "took":
            self._gathering.took[about[0]] = frozenset(about[1])
        elif what in ("ended", "lost"):
            (self._gathering.ended if what == "ended" else self._gathering.lost).add(int(about))
            self._look_at = 0.0 if int(about) == 0 else self._look_at
        elif what == "marked":
            self._sights.mark(str(about[0]), int(about[1]))
            self._look_at = 0.0
        elif what == "attempt":
            look = self._looked()
            self._sights.begin(int(about), units_of(look))
            emit(attempt=int(about))
        elif what == "finish":
            self._until = now + float(about["seconds"])
            self._is_over = bool(about["clean"])
            self._pause.resume_at = self._look_at = 0.0

    def _is_due(self, now: float) -> bool:
        if self._uploading is not None or now < self._pause.resume_at:
            return False
        changed = self._changed_at is not None and (now >= self._quiet_at or now >= self._changed_at + 10 * SETTLE)
        return changed or now >= self._look_at

    def _timeout(self) -> float:
        now = time.monotonic()
        times = [self._look_at if self._uploading is None else now + LOOK_EVERY, now + LOOK_EVERY]
        if self._changed_at is not None and self._uploading is None:
            times.append(self._quiet_at)
        if self._until is not None:
            times.append(self._until)
        if self._unread or self._is_unpublished:
            times.append(self._pause.resume_at)
        return max(0.0, max(min(times), self._pause.resume_at if self._uploading is None else 0.0) - now)

    # -- what goes up --

    def _look(self, now: float) -> None:
        self._changed_at, self._look_at = None, now + LOOK_EVERY * (6 if self._hears else 1)
        look = self._looked(self._is_over)
        for path in sorted(set(look.outside) - self._outside):
            self._outside.add(path)
            emit(problem=f"{path} isn't kept: it is a link to a folder outside of {self._directory}")
        units = units_of(look)
        for unit in units:  # at first sight: links of our own change the times later
            were_here = self._first.get(unit.name) == unit.version
            is_old = were_here and all(facts.touched < self._request["began"] for facts in unit.files.values())
            self._found.setdefault((unit.name, unit.version), is_old)
        newest = self._sights.newest(units, self._is_over)
        candidates = [unit for unit in newest if self._up.get(unit.name) != unit.version]
        self._warn(now, units)
        if candidates and (self._until is None or now < self._until):
            self._upload(min(candidates, key=self._sights.order_of))
            return
        if self._until is not None:
            if self._leads and self._is_over and not self._up:
                self._problem = self._problem or next((f"nothing is kept: {unit.why_not}" for unit in units), "")
            if not self._has_finished and (
                self._leads or 0 in self._gathering.ended | self._gathering.lost
            ):  # it marks nothing more
                self._has_finished = True
                emit(finished=True)

    def _warn(self, now: float, units: list[Unit]) -> None:
        """Says once, while the job trains, why nothing of what is here counts as whole."""
        if self._up or not units or any(unit.is_whole for unit in units):
            self._seen_at = None
        elif self._seen_at is None:
            self._seen_at = now
        elif now - self._seen_at >= UNKEPT and not self._has_warned:
            self._has_warned = True
            emit(problem=f"nothing is kept yet: {units[0].why_not}")

    def _looked(self, is_over: bool = False) -> Look:
        marks, moved = tuple(self._request["marks"]), frozenset[str]()
        if self._watches:
            moved = self._watches[0].moved
        return look_at(self._directory, self._world, is_over, marks, self._said(), self._own, moved)

    def _said(self) -> frozenset[str]:
        try:
            said = Below(self._state).read(SAID, MOST_JSON) or b""
        except OSError:
            return frozenset()
        lines = os.fsdecode(said).split("\n")[:-1]
        paths = [os.path.relpath(os.path.realpath(line), self._directory) for line in lines if "\0" not in line]
        return frozenset(path for path in paths if not path.startswith(".."))

    def _upload(self, unit: Unit) -> None:
        self._uploading = unit
        self._uploads += 1
        prefix = f"files/{self._place}/{self._run}-{self._uploads:06d}"
        attempt = self._sights.attempt_of(unit)
        if self._leads and self._hosts > 1 and unit.marked:
            emit(marked=unit.name, of=attempt)
        threading.Thread(target=self._transfer, args=(unit, prefix, attempt), daemon=True).start()

    def _transfer(self, unit: Unit, prefix: str, attempt: int) -> None:
        """In a thread: holds the files by links of our own, so that a program may remove them meanwhile, sends those
        that aren't at the store yet, and looks whether they are still the same.
        """
        began, held = time.monotonic(), os.path.join(self._state, "held")
        entries, outgoing, sent = list[Entry](), list[Outgoing](), 0
        try:
            self._check_owner()
            os.makedirs(held, exist_ok=True)
            for number, (path, facts) in enumerate(sorted(unit.files.items())):
                if not self._leads and not belongs(unit.name, path):
                    continue  # the first host's count
                known = self._known.get((path, facts.version))
                if known is not None and known.place == self._place:
                    entries.append(known._replace(everywhere=unit.everywhere))
                    continue
                key, opens = f"{prefix}/{path}", _held(self._tree, path, facts, held, str(number))
                with opens() as file:
                    _check_same(file, path, facts)
                    digest = digest_of(file)
                its = Entry(path, facts.size, digest, key, self._place, unit.everywhere, "", facts.changed)
                entries.append(its)
                outgoing.append(Outgoing(opens, key, facts.size))
            put_all(self._shelf.store, outgoing, Terms(note=lambda words: emit(problem=words), until=self._until))
            for each in outgoing:
                path = each.name.removeprefix(f"{prefix}/")
                with each.open() as file:
                    _check_same(file, path, unit.files[path])
            for path, target in unit.links.items():
                entries.append(Entry(path, 0, "", "", self._place, unit.everywhere, target))
            sent = sum(each.size for each in outgoing)
            ours = (unit.name, unit.family, self._place, self._hosts, tuple(entries))
            texts = unit.texts if self._leads else {}
            part = Part(*ours, unit.needs, unit.marked, texts, attempt, self._found[unit.name, unit.version])
            if not self._leads:
                data = json.dumps(part.plain()).encode()
                self._shelf.store.write(f"parts/{self._place}/{self._run}-{self._uploads:06d}.json", data)
            self._events.put(("uploaded", (unit, part, sent, time.monotonic() - began, None)))
        except (StoreError, OSError, ForeignName, _Changed, _Taken) as error:
            with contextlib.suppress(StoreError):  # a store that was full has room again
                self._shelf.store.delete([each.name for each in outgoing])
            self._events.put(("uploaded", (unit, None, 0, 0.0, error)))
        except Exception as error:  # a failure of the library's
            self._events.put(("uploaded", (unit, None, 0, 0.0, self._shelf.store.explain(error))))
        finally:
            shutil.rmtree(held, ignore_errors=True)

    def _on_uploaded(self, unit: Unit, part: Part | None, sent: int, seconds: float, error: Any) -> None:
        self._uploading, self._look_at = None, 0.0
        if part is None:
            if isinstance(error, (_Changed, FileNotFoundError)):
                # it was replaced or removed: what is there now, goes up
                self._pause.resume_at = time.monotonic() + SETTLE
                self._misses += 1
                if self._misses == MISSES:
                    emit(
                        problem=f"{unit.name} changes while it goes up ({error}): nothing of it is kept until it stays"
                    )
            elif isinstance(error, _Taken):
                self._give_up(error)
            else:
                self._failed(error)
            return
        self._pause.succeeded()
        self._misses = 0
        self._up[unit.name] = unit.version
        for entry in part.files:
            its = link_version(entry.link) if entry.link else unit.files[entry.path].version
            self._known[entry.path, its] = entry
        self._bytes += sent
        emit(uploaded=unit.name, bytes=sent, seconds=seconds)
        if self._leads:
            self._gathering.add(part)
        else:
            self._count += 1
            emit(part={"name": unit.name, "key": f"parts/{self._place}/{self._run}-{self._uploads:06d}.json"})

    def _failed(self, error: Any) -> None:
        words = error.strerror or str(error) if isinstance(error, OSError) else str(error)
        self._pause.failed(LONGEST_PAUSE if self._until is None else 2.0)
        if self._until is not None and not getattr(error, "passing", False):
            self._refusals += 1
            if self._refusals >= REFUSALS:
                self._until = time.monotonic()
        if words != self._problem:
            emit(problem=words)
        self._problem = words

    # -- the first host: what is whole on all hosts --

    def _read_parts(self) -> None:
        """Reads the parts of which other hosts have told. One that can't be read is read again later; one that its host
        may not have is refused.
        """
        for (place, name), key in list(self._unread.items()):
            try:
                if not re.fullmatch(rf"parts/{place}/\w{{1,32}}-\d{{6}}\.json", key):
                    raise ValueError(f"it is described by {key[:300]!r}")
                data = self._shelf.store.read(key)
                if data is not None:
                    part = Part.of(read_json(data))
                    if (part.name, part.place, part.hosts) != (name, place, self._hosts) or part.texts:
                        raise ValueError(f"it is of host {part.place} of {part.hosts}, {part.name}, {part.texts}")
                    self._shelf.check(part)
                    self._keys[place, name] = key
                    self._gathering.add(part)
            except (ValueError, TypeError, KeyError) as error:
                self._refuse(place, name, error)
            except (StoreError, OSError) as error:
                self._unreadable[key] += 1
                if getattr(error, "passing", False) or self._unreadable[key] < REFUSALS:
                    self._failed(error)
                    return
                self._refuse(place, name, error)
            del self._unread[place, name]

    def _refuse(self, place: int, name: str, why: Exception) -> None:
        self._gathering.refused.add(place)
        host = self._request["names"][place]
        self._problem = f"{host}'s part of {printable(name, 300)} is refused: {printable(str(why), 300)}"
        emit(problem=self._problem)

    def _settle_parts(self) -> None:
        """Writes a manifest where a checkpoint has become whole on all hosts: none as long as a part that a host has
        told of is unread.
        """
        self._is_unpublished = bool(self._unread)
        for whole in self._gathering.wholes() if not self._unread else ():
            if why := contradiction(self._gathering.with_it(whole), self._request["names"]):
                self._problem = f"nothing of {printable(whole.name, 300)} is kept: {printable(why, 300)}"
                emit(problem=self._problem)
                self._gathering.drop(whole)
            elif self._publish(whole):
                self._keys = {which: key for which, key in self._keys.items() if which[1] not in whole.past}
            else:
                self._is_unpublished = True

    def _publish(self, whole: Whole) -> bool:
        try:
            if self._number is None:
                self._number = next(iter(self._shelf.numbers()), 0)
            self._number = max(self._number, next(iter(self._shelf.numbers()), 0)) + 1
            parts, owner = self._gathering.with_it(whole), self._request["owner"]
            manifest = Manifest(self._number, self._request["job"], self._hosts, parts, owner)
            self._check_owner()
            if not self._shelf.write(manifest):
                raise StoreError(f"manifest {self._number} is there already: another start wrote it", passing=True)
        except _Taken as error:
            self._give_up(error)
        except Exception as error:
            self._failed(self._shelf.store.explain(error))
            return False
        self._count += 1
        self._problem = ""
        past = [key for (_, name), key in self._keys.items() if name in whole.past]
        took = [whole.family, sorted(whole.took)]
        emit(whole=whole.name, number=self._number, bytes=manifest.size, past=past, took=took)
        self._gathering.settle(whole)
        try:
            self._check_owner()
            manifests = {number: self._shelf.read(number) for number in self._shelf.numbers()}
            gone = superseded(manifests, self._request["keep"], self._request["job"])
            if gone.manifests:
                self._shelf.remove(*gone)
        except _Taken as error:
            self._give_up(error)
        except Exception as error:
            emit(problem=f"an older checkpoint can't be removed: {self._shelf.store.explain(error)}")
        return True

    # -- whose the place is --

    def _check_owner(self) -> None:
        """Raises where another start of the job has taken the place."""
        who = self._shelf.owner_after(self._request["owner"]) if self._request["owner"] else ""
        if who:
            raise _Taken(
                f"another start of {self._request['job']} has taken {self._request['uri']} ({who}): nothing more is "
                "kept from here, and the job goes on"
            )

    def _give_up(self, why: Exception) -> NoReturn:
        emit(problem=str(why))
        self._tell_end([], str(why))
        os._exit(0)

    def _tell_end(self, left: list[str], problem: str) -> None:
        emit(over={"checkpoints": self._count, "bytes": self._bytes, "left": left, "problem": problem})

    # -- the end --

    def _is_finished(self) -> bool:
        if self._until is None:
            return False
        if time.monotonic() >= self._until:
            return True
        if self._uploading is not None or not self._has_finished or self._unread or self._is_unpublished:
            return False
        others = set(range(1, self._hosts)) - self._gathering.gone if self._leads else set()
        return not others

    def _leave(self) -> None:
        if self._leads:
            self._read_parts()
            self._settle_parts()
        left = [self._uploading.name] if self._uploading is not None else []
        emit(
            over={
                "checkpoints": self._count,
                "bytes": self._bytes,
                "left": left + self._gathering.left,
                "problem": self._problem,
            }
        )


class _Changed(Exception):
    """A file is another one now."""


class _Taken(Exception):
    """The place is another start's; the text says whose."""


def _check_same(file: BinaryIO, name: str, facts: Facts) -> None:
    if version_of(os.fstat(file.fileno())) != facts.version:
        raise _Changed(name)


def _held(tree: Tree, path: str, facts: Facts, folder: str, name: str) -> Callable[[], BinaryIO]:
    """Makes a call that opens a file: by another name in our ``folder``, where the file system knows that."""
    held = os.path.join(folder, name)
    try:
        if facts.elsewhere:
            Tree("/").link(facts.elsewhere.lstrip("/"), held)
        else:
            tree.link(path, held)
    except FileNotFoundError:
        raise
    except OSError:
        return partial(file_of, tree, path, facts)
    return partial(Below(folder).file, name)
