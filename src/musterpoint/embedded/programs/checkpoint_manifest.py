"""The manifests of a place for checkpoints: what is whole there, and nothing else is trusted.

A manifest is one object with the name, size and checksum of every file; it is written when all files are there. Its
own checksum is in it, so half a manifest is none. Below the place are ``manifests/`` (one object each, by number),
``files/`` (the files of each upload in a folder of their own, so nothing is ever overwritten) and ``parts/`` (what
several hosts tell the first one), ``owners/`` (one object for each start of a job: the last start owns the place).
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import time
from typing import Any, Mapping, NamedTuple, Sequence

from musterpoint.base.below import ForeignName, link_target, parts_of
from musterpoint.base.untrusted import check_types, read_json
from musterpoint.embedded.programs.checkpoint_look import POINTERS, SHARED, pointer
from musterpoint.embedded.programs.transfer import open_store, place_below
from musterpoint.embedded.programs.transfer_s3 import Store, StoreError

VERSION = 2
_OLDEST = 1
"""The oldest version that is read: without links and owners."""
_NAME, _OWNER = re.compile(r"(\d{12})\.json"), re.compile(r"(\d{7})\.json")
_DIGEST = re.compile(r"[0-9a-f]{64}")
_LONGEST = 4096
FILES = "files"
"""The folder of all files; a manifest that names a key elsewhere isn't read."""
TOP = "."
"""The name of a checkpoint that is all files of the directory."""
_MOST_CLAIMS = 100
Types = Mapping[str, tuple[type, ...]]
"""The types that fields of a record must have."""


class Entry(NamedTuple):
    """A file of a checkpoint: its path below the directory of checkpoints, its bytes and SHA-256, its key below the
    place, and the place of the host that wrote it.

    ``everywhere``: whether the other hosts read it, too. ``link``: the relative target of a link, which has no bytes.
    ``changed``: when its content was last changed (ns).
    """

    path: str
    size: int
    sha256: str
    key: str
    place: int
    everywhere: bool
    link: str = ""
    changed: int = 0

    def check(self, place: int) -> None:
        """Raises a ForeignName, or a ValueError, where this can't be a file of the host at ``place``."""
        check_types(self, _ENTRY)
        parts_of(self.path)
        if self.size < 0 or any(abs(each) >= 1 << 62 for each in (self.size, self.changed)):
            raise ValueError(f"{self.path}: its size is {self.size!r}")
        if self.place != place:
            raise ValueError(f"{self.path} is of host {self.place!r}, in the part of host {place!r}")
        if self.link:
            link_target(self.path, self.link)
        elif not _DIGEST.fullmatch(self.sha256):
            raise ValueError(f"{self.path}: {self.sha256!r} is no checksum")
        elif parts_of(self.key)[:2] != [FILES, str(place)] or self.key.count("/") < 2:
            raise ForeignName(f"{self.key!r} isn't below {FILES}/{place}/")


class Part(NamedTuple):
    """One host's files of the checkpoint ``name``, which are all at the store: the host at ``place`` of ``hosts``.

    ``family``: the same for all that one program saves one after the other. ``needs``: files that must be there on some
    host. ``marked``: a mark of its own says that every host's part is whole. ``texts``: small files that name this
    checkpoint, and what they then say; the first host's count. ``attempt``: of the job, in which it became whole here.
    ``found``: all of it was here before the job began.
    """

    name: str
    family: str
    place: int
    hosts: int
    files: tuple[Entry, ...]
    needs: tuple[str, ...]
    marked: bool
    texts: dict[str, str]
    attempt: int
    found: bool = False

    def plain(self) -> dict[str, Any]:
        """As JSON has it."""
        return {**self._asdict(), "files": [list(entry) for entry in self.files]}

    @classmethod
    def of(cls, plain: dict[str, Any]) -> Part:
        """Raises a ValueError, KeyError or TypeError where it is none, or names what isn't its host's."""
        files = tuple(Entry(*entry) for entry in plain["files"])
        found = cls(**{**plain, "files": files, "needs": tuple(plain["needs"])})
        check_types(found, _PART)
        if found.name != TOP:
            parts_of(found.name)
        if not 0 <= found.place < found.hosts < 1 << 31:
            raise ValueError(f"{found.name} is of host {found.place} of {found.hosts}")
        for entry in files:
            entry.check(found.place)
            shared = not found.place and os.path.basename(entry.path) in SHARED
            if not (shared or belongs(found.name, entry.path) or points_to(found.name, entry)):
                raise ValueError(f"{entry.path} is no file of {found.name}")
        if len({entry.path for entry in files}) < len(files):
            raise ValueError(f"{found.name} has a file twice")
        if not 0 <= found.attempt < 1 << 31 or len(found.family.encode("utf-8", "surrogateescape")) > _LONGEST:
            raise ValueError(
                f"{found.name} is of attempt {found.attempt}, and of a family of {len(found.family)} letters"
            )
        if not all(isinstance(each, str) for each in (*found.needs, *found.texts.values())):
            raise ValueError(f"needs or texts of {found.name} aren't texts")
        known = [each for file in POINTERS for each in pointer(found.name, file).items()]
        if others := [path for path, text in found.texts.items() if (path, text) not in known]:
            raise ValueError(f"{found.name} isn't named by {others[0]!r}, or not by that text")
        return found


def points_to(name: str, entry: Entry) -> bool:
    """Tells whether ``entry`` is a link beside the checkpoint ``name`` that leads to it, such as ``last``."""
    is_beside = os.path.dirname(entry.path) == os.path.dirname(name)
    return bool(entry.link) and is_beside and belongs(name, link_target(entry.path, entry.link))


def belongs(name: str, path: str) -> bool:
    """Tells whether ``path`` can be a file of a checkpoint.

    ``name``, the checkpoint's, is that of a folder, a file, files that begin so, or all that end alike.
    """
    if name == TOP:
        return "/" not in path
    if name.rpartition("/")[2] == "*.ckpt":
        return path.rpartition("/")[0] == name.rpartition("/")[0] and path.endswith(".ckpt")
    return path == name or path.startswith((f"{name}/", f"{name}."))


def contradiction(parts: Sequence[Part], names: Sequence[str] = ()) -> str:
    """Says which hosts can't both be right; empty: none.

    A file of one host is no folder of another's. What other hosts read is the same wherever it lies, unless the first
    host has it. ``names``: of the hosts.
    """
    having: dict[str, list[Entry]] = {}
    for part in parts:
        for entry in part.files:
            having.setdefault(entry.path, []).append(entry)

    def both(one: Entry, other: Entry) -> str:
        places = sorted({one.place, other.place})
        return " and ".join(names[place] if place < len(names) else f"host {place}" for place in places)

    for path, entries in having.items():
        folder = path.rpartition("/")[0]
        while folder:
            if folder in having:
                one = having[folder][0]
                return f"{both(one, entries[0])} can't have {folder} as a file and as a folder"
            folder = folder.rpartition("/")[0]
        kinds = {(entry.size, entry.sha256, entry.link) for entry in entries}
        shared = any(entry.everywhere for entry in entries) and all(entry.place for entry in entries)
        if shared and len(kinds) > 1:
            return f"{both(entries[0], entries[-1])} have {path}, and not the same"
    return ""


class Manifest(NamedTuple):
    """One state of the checkpoints: every host's part of the newest whole one of each family.

    ``number``: manifests count up. ``job``: whose it is. ``hosts``: how many wrote it. ``owner``: the start of the job.
    """

    number: int
    job: str
    hosts: int
    parts: tuple[Part, ...]
    owner: int = 0

    @property
    def files(self) -> tuple[Entry, ...]:
        return tuple(entry for part in self.parts for entry in part.files)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(sorted({part.name for part in self.parts}))

    @property
    def texts(self) -> dict[str, str]:
        return {path: text for part in self.parts if not part.place for path, text in part.texts.items()}

    @property
    def size(self) -> int:
        return sum(entry.size for entry in self.files)

    def encode(self) -> bytes:
        content = {**self._asdict(), "version": VERSION, "parts": [part.plain() for part in self.parts]}
        return json.dumps({**content, "sha256": _digest(content)}, sort_keys=True).encode()

    @classmethod
    def decode(cls, data: bytes) -> Manifest | None:
        """The manifest; None where it isn't whole.

        Raises:
            StoreError: a later musterpoint wrote it, or it names what lies outside of the place or the directory.
        """
        try:
            content = read_json(data)
            digest = content.pop("sha256")
            if digest != _digest(content):
                return None
            version = content.pop("version")
        except (ValueError, KeyError, TypeError, AttributeError):
            return None
        if version not in range(_OLDEST, VERSION + 1):
            raise StoreError(f"the manifest of the checkpoints is of version {version}, and this reads {VERSION}")
        try:
            if not (isinstance(parts := content.pop("parts"), list) and parts):
                raise TypeError("parts: expected a list that isn't empty")
            found = cls(parts=tuple(map(Part.of, parts)), **content)
            check_types(found, _MANIFEST)
            if len({(part.family, part.name) for part in found.parts}) > len({part.family for part in found.parts}):
                raise ValueError("hosts have parts of different checkpoints of one family")
            if why := contradiction(found.parts):
                raise ValueError(why)
            return found
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise StoreError(f"a manifest of the checkpoints isn't what musterpoint writes: {error}") from None


_ENTRY: Types = {
    **dict.fromkeys(("path", "sha256", "key", "link"), (str,)), **dict.fromkeys(("size", "place", "changed"), (int,)),
    "everywhere": (bool,),
}  # fmt: skip
_PART: Types = {
    "name": (str,), "family": (str,), "place": (int,), "hosts": (int,), "marked": (bool,), "texts": (dict,),
    "attempt": (int,), "found": (bool,),
}  # fmt: skip
_MANIFEST: Types = {"number": (int,), "job": (str,), "hosts": (int,), "owner": (int,)}


def _digest(content: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


class Shelf:
    """The manifests of one place."""

    def __init__(self, uri: str, access: dict[str, Any]) -> None:
        self.uri, self._access = uri, access
        places = (place_below(uri, name) for name in ("", "manifests", "owners"))
        self.store, self._manifests, self._owners = (open_store(place, access) for place in places)

    def check(self, part: Part) -> None:
        """Raises a ValueError where a file of ``part`` isn't at the store in its size."""
        there: dict[str, int] = {}
        uploads = {"/".join(entry.key.split("/")[:3]) for entry in part.files if not entry.link}
        for upload in uploads:  # all that a host sent at once lies in one folder
            items = open_store(place_below(self.uri, upload), self._access).items()
            there.update({f"{upload}/{item.name}": item.size for item in items})
        for entry in part.files:
            if not entry.link and there.get(entry.key) != entry.size:
                raise ValueError(f"{entry.path} isn't at the store with its {entry.size:,} bytes")

    def numbers(self) -> list[int]:
        """The numbers of all manifests, the newest first."""
        return _numbers(self._manifests, _NAME)

    def read(self, number: int) -> Manifest | None:
        """The manifest of that number; None: it isn't there any more, or isn't whole."""
        data = self._manifests.read(_name(number))
        return None if data is None else Manifest.decode(data)

    def newest(self) -> Manifest | None:
        """The newest whole one; None where there is none."""
        return next((found for number in self.numbers() if (found := self.read(number)) is not None), None)

    def write(self, manifest: Manifest) -> bool:
        """Makes a manifest; False: another start of the job has made one of that number."""
        return self._manifests.write(_name(manifest.number), manifest.encode(), only_new=True)

    # -- whose the place is --

    def claim(self, job: str, host: str) -> int:
        """Makes this start of ``job`` the owner of the place; returns its number.

        Raises:
            StoreError: the place is another job's, or its store can't make a file only where there is none.
        """
        number = next(iter(_numbers(self._owners, _OWNER)), 0)
        if number:
            self._check_owner(number, job)
        said = json.dumps({"job": job, "host": host, "at": time.time()}).encode()
        for _ in range(_MOST_CLAIMS):
            number += 1
            if not self._owners.write(f"{number:07d}.json", said, only_new=True):
                continue
            if self._owners.write(f"{number:07d}.json", said, only_new=True):
                raise StoreError(
                    f"{self.uri}: this store replaces a file that is to be made only where there is none, so two "
                    "starts of a job could both keep checkpoints there: name another store, or update its library"
                )
            return number
        raise StoreError(f"{self.uri}: {_MOST_CLAIMS} other starts of the job have taken it in this moment")

    def _check_owner(self, number: int, job: str) -> None:
        try:
            owner = read_json(self._owners.read(f"{number:07d}.json") or b"{}").get("job", job)
        except (ValueError, AttributeError):
            owner = job
        if owner != job:
            raise not_its(self.uri, owner, job)

    def owner_after(self, number: int) -> str:
        """Who has taken the place after the start ``number``; empty: nobody."""
        data = self._owners.read(f"{number + 1:07d}.json")
        if data is None:
            return ""
        try:
            said = read_json(data)
            return f"on {said['host']} since {time.strftime('%H:%M:%S', time.localtime(said['at']))}"
        except (ValueError, KeyError, TypeError, OverflowError, OSError):
            return "elsewhere"

    def remove(self, numbers: Sequence[int], keys: Sequence[str]) -> None:
        """Removes manifests, then files by their keys."""
        self._manifests.delete([_name(number) for number in numbers])
        self.store.delete(keys)


def not_its(uri: str, owner: str, job: str) -> StoreError:
    """What is said where a place has another job's checkpoints."""
    return StoreError(
        f"{uri} has checkpoints of the job {owner!r}, and this is {job!r}: name another place, or this job as that one "
        "(--job-name, where the platform gives no name)"
    )


def _numbers(store: Store, pattern: re.Pattern[str]) -> list[int]:
    """The numbers in the names of a store's files, the highest first."""
    found = (pattern.fullmatch(item.name) for item in store.items())
    return sorted((int(match[1]) for match in found if match), reverse=True)


def _name(number: int) -> str:
    return f"{number:012d}.json"


def for_host(manifest: Manifest, place: int, hosts: int, which: str) -> list[Entry]:
    """The files that the host at ``place`` of ``hosts`` gets; its own first where several hosts have one of a name.

    ``which``: ``all``; ``leader``: all, on the first host only; ``own``: its own and what its kind reads on every host,
    all where the number of hosts is another one. A host without files of its own gets those of the first that has any.
    """
    if which == "leader" and place:
        return []
    families: dict[str, list[Part]] = {}
    for part in manifest.parts:
        families.setdefault(part.family, []).append(part)
    entries = (entry for parts in families.values() for entry in _of_family(parts, place, hosts, which))
    found: dict[str, Entry] = {}
    for entry in sorted(entries, key=lambda each: (each.place != place, each.place)):
        found.setdefault(entry.path, entry)
    return list(found.values())


def _of_family(parts: list[Part], place: int, hosts: int, which: str) -> list[Entry]:
    entries = [entry for part in parts for entry in part.files]
    if which != "own" or any(part.hosts != hosts for part in parts):
        return entries
    places = {entry.place for entry in entries}
    source = place if place in places else min(places, default=0)
    return [entry for entry in entries if entry.everywhere or entry.place == source]
