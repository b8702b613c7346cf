"""Sights of checkpoints on this host, and the hosts' parts at the first one: which are whole, and in which order.

Files that lie here when an attempt ends are that attempt's as long as they stay as they are, whole or not: the first
host's mark for them may come when the next attempt has begun.
"""

from __future__ import annotations

import collections
import json
import os
import time
from typing import Iterable, NamedTuple

from musterpoint.embedded.programs.checkpoint_kinds import Unit
from musterpoint.embedded.programs.checkpoint_look import LINK, Version, family_of
from musterpoint.embedded.programs.checkpoint_manifest import Part

OTHERS = 30.0
"""Seconds that the first host waits for hosts of which nothing is known, where a kind doesn't say what it needs."""

GONE = 30.0
"""Seconds after which a file that isn't there any more, nor one of its family, has been removed for good."""

Its = tuple[tuple[str, Version], ...]
"""The version of each of a checkpoint's files."""


class Sights:
    """``path``: a file by which a keeper that is started in the place of another one of the same ``run`` knows this.
    ``several``: whether there are several ranks, of which one may write after another one's mark.
    """

    def __init__(self, path: str, run: str, attempt: int, several: bool = True) -> None:
        self._path, self._run, self._attempt, self._several = path, run, attempt, several
        self._whole: dict[str, tuple[Its, int]] = {}
        self._left: dict[str, tuple[Its, int]] = {}
        self._before_mark: dict[str, Its] = {}
        self._marked: set[tuple[str, int]] = set()
        self._gone_at: dict[str, float] = {}
        self._count = 0
        self._read()

    def mark(self, name: str, attempt: int) -> None:
        """The first host has marked what was saved in ``attempt`` as whole."""
        self._marked.add((name, attempt))

    def newest(self, units: list[Unit], is_over: bool = False) -> list[Unit]:
        """Of each family the whole one of the last attempt that has one: what has become whole last; of those that were
        found together, the highest number. ``is_over``: nothing is being written or removed any more.
        """
        newest: dict[str, Unit] = {}
        for unit in units:
            if not unit.files or not (unit.is_whole or self._is_marked(unit)):
                continue
            if self._whole.get(unit.name, ((), 0))[0] != unit.version:
                if not is_over and self._is_torn(unit):
                    continue
                before = self._whole.get(unit.name, ((), 0))[0]
                if dict(before).get(unit.mark) != dict(unit.version).get(unit.mark):
                    self._before_mark[unit.name] = before
                self._add(unit.name, unit.version)
                self._write()
            other = newest.get(unit.family)
            if other is None or self.order_of(unit) > self.order_of(other):
                newest[unit.family] = unit
        return list(newest.values())

    def _is_torn(self, unit: Unit) -> bool:
        """Whether a whole one is being removed, or written over under the mark that it had before."""
        before = {path: its for path, its in self._whole.get(unit.name, ((), 0))[0] if its[0] != LINK}
        now = {path: facts.version for path, facts in unit.files.items()}
        changed = {path for path, its in before.items() if now.get(path) != its}
        if unit.mark in before and unit.mark in now:
            old = dict(self._before_mark.get(unit.name, ()))
            late = {path for path in changed & set(now) if old.get(path) == before[path]}  # another rank's
            return unit.mark not in changed and changed != (late if self._several else set())
        if not any(path.startswith(f"{unit.name}/") for path in now):  # each file is a checkpoint of its own
            return self._misses_one(unit.name, set(before) - set(now), set(now))
        is_mixed = len(changed) < len(before) or not set(now.items()) - set(before.items())
        return bool(changed) and is_mixed

    def _misses_one(self, name: str, gone: set[str], here: set[str]) -> bool:
        """Whether a file that is ``gone``, or is half, may come back: its program removes it to save it again."""
        families = {family_of(path) for path in here}
        if families.issuperset(family_of(path) for path in gone):
            self._gone_at.pop(name, None)
            return False
        since = self._gone_at.setdefault(name, time.monotonic())
        return time.monotonic() - since < GONE

    def was_whole(self, name: str, version: Its) -> None:
        """It was whole in this version before anything was seen here."""
        if name not in self._whole:
            self._add(name, version)

    def _is_marked(self, unit: Unit) -> bool:
        """Whether the first host's mark makes it whole; the mark says nothing about the files that are here."""
        return unit.is_unmarked and (unit.name, self.attempt_of(unit)) in self._marked

    def order_of(self, unit: Unit) -> tuple[int, int]:
        """In which attempt it was saved, and when it was first seen whole, among those that :meth:`newest` has seen:
        what an attempt left may become whole after something that a later one has saved.
        """
        return self.attempt_of(unit), self._whole[unit.name][1]

    def attempt_of(self, unit: Unit) -> int:
        """In which attempt it was saved as it is here."""
        version, attempt = self._left.get(unit.name, ((), 0))
        return attempt if version == unit.version else self._attempt

    def begin(self, attempt: int, units: list[Unit]) -> None:
        """An attempt is over that left ``units``, and ``attempt`` begins."""
        self.newest(units)
        self._left = {unit.name: (unit.version, self.attempt_of(unit)) for unit in units}
        self._attempt = attempt
        self._write()

    def _add(self, name: str, version: Its) -> None:
        self._count += 1
        self._whole[name] = version, self._count

    def _write(self) -> None:
        whole = sorted(self._whole.items(), key=lambda each: each[1][1])
        left = [[name, its, attempt] for name, (its, attempt) in self._left.items()]
        try:
            with open(f"{self._path}.new", "w", encoding="utf-8", errors="surrogateescape") as file:
                seen = [[name, its, self._before_mark.get(name, ())] for name, (its, _) in whole]
                json.dump([self._run, seen, left], file)
            os.replace(f"{self._path}.new", self._path)
        except OSError:
            pass  # a full disk: only a keeper that is started in this one's place would miss it

    def _read(self) -> None:
        try:
            with open(self._path, encoding="utf-8", errors="surrogateescape") as file:
                run, whole, left = json.load(file)
            if run != self._run:
                return
            seen = [(str(name), _version(its), _version(before)) for name, its, before in whole]
            self._left = {str(name): (_version(its), int(attempt)) for name, its, attempt in left}
        except (OSError, ValueError, TypeError):  # somebody else's file is as none
            return
        for name, its, before in seen:
            self._add(name, its)
            self._before_mark[name] = before


def _version(its: list[tuple[str, list[int]]]) -> Its:
    return tuple((path, (size, changed, inode)) for path, (size, changed, inode) in its)


class Whole(NamedTuple):
    """A checkpoint that is whole on all hosts: its parts, by host. ``past``: the names that need no manifest once it
    has one, its own among them. ``took``: the hosts that have had parts of its family.
    """

    family: str
    name: str
    parts: dict[int, Part]
    past: tuple[str, ...]
    took: frozenset[int]


class Gathering:
    """The parts of all ``hosts``, by family and name. ``ended``: hosts that have no more; ``lost``: that were lost;
    ``refused``: that told of a part which they may not have.

    ``current``: of each family what the newest manifest has. ``took``: the hosts that had parts in one.
    """

    def __init__(self, hosts: int) -> None:
        self._hosts = hosts
        self.current: dict[str, dict[int, Part]] = {}
        self.took: dict[str, frozenset[int]] = {}
        self.ended, self.lost, self.refused = set[int](), set[int](), set[int]()
        self._parts: dict[str, dict[str, dict[int, Part]]] = collections.defaultdict(dict)
        self._first_at: dict[str, float] = {}
        self._takes: dict[str, set[int]] = collections.defaultdict(set)

    @property
    def gone(self) -> set[int]:
        """The hosts of which nothing more comes."""
        return self.ended | self.lost

    def begin_with(self, parts: Iterable[Part]) -> None:
        """The newest manifest has ``parts``: what no program saves again stays as it is."""
        for part in parts:
            self.current.setdefault(part.family, {})[part.place] = part

    def add(self, part: Part) -> None:
        """A host has a part at the store."""
        if part == self.current.get(part.family, {}).get(part.place):  # the newest manifest has it
            return
        self._takes[part.family].add(part.place)
        parts = self._parts[part.family].setdefault(part.name, {})
        latest = max((each.attempt for each in parts.values()), default=0)
        if part.attempt < latest:
            return
        if part.attempt > latest:  # parts of two attempts are no checkpoint
            parts.clear()
            self._first_at.pop(part.name, None)
        parts[part.place] = part
        self._first_at.setdefault(part.name, time.monotonic())

    def wholes(self) -> list[Whole]:
        """Of each family the newest checkpoint that is whole and in no manifest."""
        found = []
        for family, names in self._parts.items():
            for name in sorted(names, key=lambda each: self._order_of(names[each]), reverse=True):
                if self._is_complete(family, names[name]):
                    order = self._order_of(names[name])
                    past = tuple(each for each in names if self._order_of(names[each]) <= order)
                    took = self.took.get(family, frozenset()) | frozenset(names[name])
                    found.append(Whole(family, name, names[name], past, took))
                    break
        return found

    def with_it(self, whole: Whole) -> tuple[Part, ...]:
        """The parts of a manifest that has ``whole``, and of the other families what the last one has."""
        families = {**self.current, whole.family: whole.parts}
        return tuple(part for parts in families.values() for part in parts.values())

    def settle(self, whole: Whole) -> None:
        """A manifest has it."""
        self.current[whole.family], self.took[whole.family] = whole.parts, whole.took
        for name in whole.past:
            del self._parts[whole.family][name], self._first_at[name]

    def drop(self, whole: Whole) -> None:
        """It isn't kept: its parts contradict each other."""
        del self._parts[whole.family][whole.name], self._first_at[whole.name]

    @property
    def left(self) -> list[str]:
        """The names of what is in no manifest, but for what was here before the job."""
        named = (each for names in self._parts.values() for each in names.items())
        return sorted(name for name, parts in named if not any(part.found for part in parts.values()))

    def _order_of(self, parts: dict[int, Part]) -> tuple[int, float]:
        """Of parts of one name: what a later attempt has saved is newer."""
        name = next(iter(parts.values())).name
        return max(part.attempt for part in parts.values()), self._first_at[name]

    def _is_complete(self, family: str, parts: dict[int, Part]) -> bool:
        needs = {path for part in parts.values() for path in part.needs}
        have = {entry.path for part in parts.values() for entry in part.files}
        if needs or self._hosts == 1:
            return 0 in parts and needs <= have
        if 0 not in parts and any(part.marked for part in parts.values()):
            return False
        others = set(range(self._hosts)) - set(parts)
        if others and any(part.found for part in parts.values()):  # another host has lost its part, or never had one
            return False
        takes = self.took.get(family, frozenset()) | self._takes[family] | self.refused
        if others & takes:  # its part may have been lost
            return False
        others -= self.ended
        first = min(self._first_at[part.name] for part in parts.values())
        return not others or family in self.took or time.monotonic() - first >= OTHERS
