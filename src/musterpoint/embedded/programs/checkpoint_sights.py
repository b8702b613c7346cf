"""What is seen of checkpoints: which were whole on this host, in which order, and in which attempt of the job each was
saved.

Files that lie here when an attempt ends are that attempt's as long as they stay as they are, whole or not: the first
host's mark for them may come when the next attempt has begun.
"""

from __future__ import annotations

import json
import os

from musterpoint.embedded.programs.checkpoint_kinds import Unit
from musterpoint.embedded.programs.checkpoint_look import LINK, Version

Its = tuple[tuple[str, Version], ...]
"""The version of each of a checkpoint's files."""


class Sights:
    """``path``: a file by which a keeper that is started in the place of another one of the same ``run`` knows this."""

    def __init__(self, path: str, run: str, attempt: int) -> None:
        self._path, self._run, self._attempt = path, run, attempt
        self._whole: dict[str, tuple[Its, int]] = {}
        self._left: dict[str, tuple[Its, int]] = {}
        self._marked: set[tuple[str, int]] = set()
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
            return bool(changed) and unit.mark not in changed
        is_folder = any(path.startswith(f"{unit.name}/") for path in now)  # else each file is a checkpoint of its own
        return is_folder and bool(changed) and not set(now.items()) - set(before.items())

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
                json.dump([self._run, [[name, its] for name, (its, _) in whole], left], file)
            os.replace(f"{self._path}.new", self._path)
        except OSError:
            pass  # a full disk: only a keeper that is started in this one's place would miss it

    def _read(self) -> None:
        try:
            with open(self._path, encoding="utf-8", errors="surrogateescape") as file:
                run, whole, left = json.load(file)
        except (OSError, ValueError):
            return
        if run != self._run:
            return
        for name, its in whole:
            self._add(name, _version(its))
        self._left = {name: (_version(its), attempt) for name, its, attempt in left}


def _version(its: list[tuple[str, list[int]]]) -> Its:
    return tuple((path, (size, changed, inode)) for path, (size, changed, inode) in its)
