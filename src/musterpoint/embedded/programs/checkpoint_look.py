"""What a directory of checkpoints has: its folders and files, as they are at one moment.

Runs in any Python, the ranks' own too, by the standard library only. Paths are relative to the directory of the
checkpoints, with "/" between their parts.
"""

from __future__ import annotations

import os
import re
import stat
from typing import NamedTuple

PRIVATE = ".muster-"
"""Begins names of ours; nothing of the user's."""
MOST_JSON = 64 * 1024**2
"""Bytes of a text that is read."""
TEMPORARY = re.compile(r"(\.(tmp|temp|part|partial|incomplete|lock|swp)\b|^tmp|orbax-checkpoint-tmp|~$)", re.IGNORECASE)
"""Names under which programs write what they rename when it is whole."""
_RANK = re.compile(r"(rank|r|host|node|shard|proc)[-_]?\d+", re.IGNORECASE)
_NUMBERS = re.compile(r"\d+")

Version = tuple[int, int, int]


class Facts(NamedTuple):
    """A file: its bytes, the times of the last change of its content and of anything of it (ns), and its inode."""

    size: int
    changed: int
    touched: int
    inode: int

    @property
    def was_renamed(self) -> bool:
        """A rename after the last write shows in the second time only."""
        return self.touched > self.changed

    @property
    def version(self) -> Version:
        """Differs when the content has changed; links of our own change only ``touched``."""
        return self.size, self.changed, self.inode


class World(NamedTuple):
    """How many ranks the job has, and which of them are on this host: ``own`` from ``first`` on."""

    ranks: int = 1
    first: int = 0
    own: int = 1


class Look(NamedTuple):
    """What is looked at. ``root``: the directory of the checkpoints. ``folders``: the files and subfolders of each.

    ``is_over``: every rank has ended well, so that nothing is being written any more.
    ``marks``: the globs of ``--checkpoint-complete``. ``said``: paths that a program said are whole.
    """

    root: str
    folders: dict[str, dict[str, Facts]]
    below: dict[str, list[str]]
    world: World
    is_over: bool = False
    marks: tuple[str, ...] = ()
    said: frozenset[str] = frozenset()

    def path(self, name: str) -> str:
        return os.path.join(self.root, name)

    def files_below(self, folder: str) -> dict[str, Facts]:
        """Every file of ``folder`` and of what is below it, by its path."""
        found = {join(folder, name): facts for name, facts in self.folders[folder].items()}
        for name in self.below[folder]:
            found.update(self.files_below(join(folder, name)))
        return found

    def text(self, name: str) -> str | None:
        """A small file's text; None where it can't be read."""
        try:
            with open(self.path(name), encoding="utf-8") as file:
                return file.read(MOST_JSON)
        except (OSError, ValueError):
            return None


def join(folder: str, name: str) -> str:
    return f"{folder}/{name}" if folder else name


def look_at(
    root: str, world: World, is_over: bool = False, marks: tuple[str, ...] = (), said: frozenset[str] = frozenset()
) -> Look:
    """Everything below ``root``, as it is now. Links to files are files; folders of ours are left out."""
    folders: dict[str, dict[str, Facts]] = {}
    below: dict[str, list[str]] = {}
    waiting = [""]
    while waiting:
        folder = waiting.pop()
        files, inner = folders.setdefault(folder, {}), below.setdefault(folder, [])
        try:
            entries = list(os.scandir(os.path.join(root, folder)))
        except OSError:
            continue
        for entry in entries:
            if entry.name.startswith(PRIVATE):
                continue
            try:
                facts = entry.stat()
            except OSError:
                continue
            if stat.S_ISREG(facts.st_mode):
                files[entry.name] = Facts(facts.st_size, facts.st_mtime_ns, facts.st_ctime_ns, facts.st_ino)
            elif stat.S_ISDIR(facts.st_mode) and not entry.is_symlink():
                inner.append(entry.name)
                waiting.append(join(folder, entry.name))
    return Look(root, folders, below, world, is_over, marks, said)


def is_temporary(path: str) -> bool:
    """Whether programs write under the name ``path``, and rename it, or a folder above it, once it is whole."""
    return any(TEMPORARY.search(part) for part in path.split("/"))


def family_of(name: str) -> str:
    return _NUMBERS.sub("#", _RANK.sub("rank", name))


def numbers_of(name: str) -> tuple[int, ...]:
    """The numbers of a name, to put checkpoints in order that were all there when they were first seen."""
    return tuple(map(int, _NUMBERS.findall(name)))
