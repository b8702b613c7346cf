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
from typing import BinaryIO, Mapping, NamedTuple

from musterpoint.base.below import Below, ForeignName, Tree, notes_of

OWN = "own"
"""The file among our notes with what was in the directory before the job's first start, which stays the user's."""
MOST_OWN = 1024**3
"""Bytes of it that are read."""
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

SHARED = ("zero_to_fp32.py",)
"""Files beside checkpoints that belong to each of them: DeepSpeed's. The first host's count."""
Version = tuple[int, int, int]
LINK = -1
"""The size in the version of a link."""


class Facts(NamedTuple):
    """A file: its bytes, the times of the last change of its content and of anything of it (ns), and its inode.

    ``elsewhere``: the real path of a file that isn't below the root, to which a link there leads.
    """

    size: int
    changed: int
    touched: int
    inode: int
    elsewhere: str = ""

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
    """The state of a directory of checkpoints. ``root``: its real path. ``folders``: the files of each.

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

    @property
    def tree(self) -> Tree:
        return Tree(self.root)

    def file(self, name: str) -> BinaryIO:
        """One of the files, to be read."""
        folder, _, last = name.rpartition("/")
        return file_of(self.tree, name, self.folders[folder][last])

    def files_below(self, folder: str) -> dict[str, Facts]:
        """Every file of ``folder`` and of what is below it, by its path."""
        found = {join(folder, name): facts for name, facts in self.folders[folder].items()}
        for name in self.below[folder]:
            found.update(self.files_below(join(folder, name)))
        return found

    def text(self, name: str) -> str | None:
        """A small file's text; None where it can't be read."""
        try:
            with self.file(name) as file:
                return file.read(MOST_JSON).decode()
        except (OSError, ValueError):
            return None


def file_of(tree: Tree, name: str, facts: Facts) -> BinaryIO:
    """A file that was looked at, to be read: no link that has come since is followed."""
    return Tree("/").file(facts.elsewhere.lstrip("/")) if facts.elsewhere else tree.file(name)


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
    links, outside, tree = dict[str, str](), list[str](), Tree(root)
    folders: dict[str, dict[str, Facts]] = {"": {}}
    subfolders: dict[str, list[str]] = {"": []}
    for path, found in tree.walk():
        if own.get(path) == (found.st_size, found.st_mtime_ns):
            continue
        folder, _, name = path.rpartition("/")
        if stat.S_ISREG(found.st_mode):
            folders[folder][name] = _facts(found)
        elif stat.S_ISDIR(found.st_mode):
            subfolders[folder].append(name)
            folders[path], subfolders[path] = {}, []
        elif stat.S_ISLNK(found.st_mode):
            target, facts = _led_to(tree, path)
            if target:
                links[path] = target
            elif facts is not None:
                folders[folder][name] = facts
            elif os.path.isdir(tree.path(path)):
                outside.append(path)
    return Look(root, folders, subfolders, world, is_over, marks, said, links, tuple(outside), moved)


def _facts(found: os.stat_result, elsewhere: str = "") -> Facts:
    return Facts(found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_ino, elsewhere)


def _led_to(tree: Tree, link: str) -> tuple[str, Facts | None]:
    """The relative target of a link to something below the root; else, of one to a file elsewhere, that file."""
    try:
        end = tree.real(link)
        is_there = end != "." and tree.facts(end) is not None and tree.target(end) is None
        return (os.path.relpath(end, os.path.dirname(link) or "."), None) if is_there else ("", None)
    except ForeignName:
        pass
    elsewhere = os.path.realpath(tree.path(link))
    try:
        found = Tree("/").facts(elsewhere.lstrip("/"))
    except (OSError, ForeignName):
        return "", None
    return "", _facts(found, elsewhere) if found is not None and stat.S_ISREG(found.st_mode) else None


def owned(directory: str) -> dict[str, tuple[int, int]]:
    """The files of the user's own in ``directory``, with size and time of each (folders: -1), as they were written
    down before the job's first start; nothing where it hasn't started yet.
    """
    try:
        own = os.fsdecode(Below(notes_of(directory)).read(OWN, MOST_OWN) or b"")
        return {name: (size, changed) for name, size, changed in json.loads(own)["files"]}
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
