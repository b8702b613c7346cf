"""What a directory of checkpoints has: its folders and files, as they are at one moment.

Runs in any Python, the ranks' own too, by the standard library only. Paths are relative to the directory of the
checkpoints, with "/" between their parts.
"""

from __future__ import annotations

import json
import os
import re
import stat
import zlib
from typing import Mapping, NamedTuple

from musterpoint.base.below import RESERVED, below, leads_out, notes_of

OWN = "own"
"""The file among our notes with what was in the directory before the job's first start, which stays the user's."""
MOST_JSON = 64 * 1024**2
"""Bytes of a text that is read."""
TEMPORARY = re.compile(r"(\.(tmp|temp|part|partial|incomplete|lock|swp)\b|^tmp|orbax-checkpoint-tmp|~$)", re.IGNORECASE)
"""Names under which programs write what they rename when it is whole."""
_RANK = re.compile(r"(rank|r|host|node|shard|proc)[-_]?\d+", re.IGNORECASE)
_NUMBERS = re.compile(r"\d+")

POINTERS = {
    "latest": "{0}",
    "newest": "{0}\n",
    "checkpoint": 'model_checkpoint_path: "{0}"\nall_model_checkpoint_paths: "{0}"\n',
}
"""The small files by which kinds name their last checkpoint, with their texts: DeepSpeed's, smdistributed's and
TensorFlow's.
"""

Version = tuple[int, int, int]
LINK = -1
"""The size in the version of a link."""


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
    ``marks``: the globs of ``--checkpoint-complete``. ``said``: paths that a program said are whole. ``links``: of
    links to something below the root, their targets, relative; they aren't among the files and folders. ``outside``:
    links to folders elsewhere, which aren't followed. ``moved``: files and folders of which the system has told that
    they were renamed, and that nothing was written into them since.
    """

    root: str
    folders: dict[str, dict[str, Facts]]
    below: dict[str, list[str]]
    world: World
    is_over: bool = False
    marks: tuple[str, ...] = ()
    said: frozenset[str] = frozenset()
    links: Mapping[str, str] = {}
    outside: tuple[str, ...] = ()
    moved: frozenset[str] = frozenset()

    def path(self, name: str) -> str:
        return below(self.root, name)

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


def link_version(target: str) -> Version:
    """The version of a link, by its target."""
    return LINK, zlib.crc32(os.fsencode(target)), 0


def join(folder: str, name: str) -> str:
    return f"{folder}/{name}" if folder else name


def pointer(name: str, file: str) -> dict[str, str]:
    """The path of one of :data:`POINTERS` that names the checkpoint ``name``, and its text."""
    folder, _, last = name.rpartition("/")
    return {join(folder, file): POINTERS[file].format(last)}


def look_at(
    root: str,
    world: World,
    is_over: bool = False,
    marks: tuple[str, ...] = (),
    said: frozenset[str] = frozenset(),
    own: Mapping[str, tuple[int, int]] = {},
    moved: frozenset[str] = frozenset(),
) -> Look:
    """Everything below ``root``, as it is now, without what is the user's ``own`` and folders of ours. A link to a file
    elsewhere is a file.
    """
    links, outside = dict[str, str](), list[str]()
    real = os.path.realpath(root)
    folders: dict[str, dict[str, Facts]] = {}
    subfolders: dict[str, list[str]] = {}
    waiting = [""]
    while waiting:
        folder = waiting.pop()
        files, inner = folders.setdefault(folder, {}), subfolders.setdefault(folder, [])
        try:
            entries = list(os.scandir(os.path.join(root, folder)))
        except OSError:
            continue
        for entry in entries:
            if entry.name.startswith(RESERVED):
                continue
            path = join(folder, entry.name)
            try:
                facts = entry.stat(follow_symlinks=False)
                if own.get(path) == (facts.st_size, facts.st_mtime_ns):
                    continue
                if entry.is_symlink() and _is_inside(real, entry.path):
                    links[path] = os.path.relpath(os.path.realpath(entry.path), os.path.join(real, folder))
                    continue
                facts = entry.stat()
            except OSError:
                continue
            if stat.S_ISREG(facts.st_mode):
                files[entry.name] = Facts(facts.st_size, facts.st_mtime_ns, facts.st_ctime_ns, facts.st_ino)
            elif stat.S_ISDIR(facts.st_mode) and not entry.is_symlink():
                inner.append(entry.name)
                waiting.append(path)
            elif entry.is_symlink():
                outside.append(path)
    return Look(root, folders, subfolders, world, is_over, marks, said, links, tuple(outside), moved)


def _is_inside(root: str, link: str) -> bool:
    end = os.path.realpath(link)
    return end != root and not leads_out(link, root) and os.path.exists(end)


def owned(directory: str) -> dict[str, tuple[int, int]]:
    """The files of the user's own in ``directory``, with size and time of each (folders: -1), as they were written
    down before the job's first start; nothing where it hasn't started yet.
    """
    try:
        with open(os.path.join(notes_of(directory), OWN), encoding="utf-8", errors="surrogateescape") as file:
            return {name: (size, changed) for name, size, changed in json.load(file)["files"]}
    except (OSError, ValueError, TypeError, KeyError):
        return {}


def is_temporary(path: str) -> bool:
    """Whether programs write under the name ``path``, and rename it, or a folder above it, once it is whole."""
    return any(TEMPORARY.search(part) for part in path.split("/"))


def family_of(name: str) -> str:
    return _NUMBERS.sub("#", _RANK.sub("rank", name))


def numbers_of(name: str) -> tuple[int, ...]:
    """The numbers of a name, to put checkpoints in order that were all there when they were first seen."""
    return tuple(map(int, _NUMBERS.findall(name)))
