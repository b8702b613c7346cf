"""The manifests of a place for checkpoints: what is whole there, and nothing else is trusted.

A manifest is one object with the name, size and checksum of every file; it is written when all files are there. Its
own checksum is in it, so half a manifest is none. Below the place are ``manifests/`` (one object each, by number),
``files/`` (the files of each upload in a folder of their own, so nothing is ever overwritten) and ``parts/`` (what
several hosts tell the first one).
"""

from __future__ import annotations

import hashlib
import json
import re
from typing import Any, NamedTuple

from musterpoint.embedded.programs.store_s3 import open_store
from musterpoint.embedded.programs.stores import Store, StoreError

VERSION = 1
_NAME = re.compile(r"(\d{12})\.json")


class Entry(NamedTuple):
    """A file of a checkpoint: its path below the directory of checkpoints, its bytes and SHA-256, its key below the
    place, and the place of the host that wrote it.

    ``everywhere``: whether the other hosts read it, too.
    """

    path: str
    size: int
    sha256: str
    key: str
    place: int
    everywhere: bool


class Part(NamedTuple):
    """One host's files of the checkpoint ``name``, which are all at the store: the host at ``place`` of ``hosts``.

    ``family``: the same for all that one program saves one after the other. ``needs``: files that must be there on some
    host. ``marked``: a mark of its own says that every host's part is whole. ``texts``: small files that name this
    checkpoint, and what they then say. ``attempt``: of the job, in which it became whole here. ``found``: all of it was
    here before the job began.
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
        files = tuple(Entry(*entry) for entry in plain["files"])
        return cls(**{**plain, "files": files, "needs": tuple(plain["needs"])})


class Manifest(NamedTuple):
    """One state of the checkpoints: every host's part of the newest whole one of each family.

    ``number``: manifests count up. ``job``: whose it is. ``hosts``: how many wrote it.
    """

    number: int
    job: str
    hosts: int
    parts: tuple[Part, ...]

    @property
    def files(self) -> tuple[Entry, ...]:
        return tuple(entry for part in self.parts for entry in part.files)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(sorted({part.name for part in self.parts}))

    @property
    def texts(self) -> dict[str, str]:
        return {path: text for part in self.parts for path, text in part.texts.items()}

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
            StoreError: a later musterpoint wrote it.
        """
        try:
            content = json.loads(data)
            digest = content.pop("sha256")
            if digest != _digest(content):
                return None
            version = content.pop("version")
        except (ValueError, KeyError, TypeError, AttributeError):
            return None
        if version != VERSION:
            raise StoreError(f"the manifest of the checkpoints is of version {version}, and this reads {VERSION}")
        return cls(parts=tuple(map(Part.of, content.pop("parts"))), **content)


def _digest(content: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


class Shelf:
    """The manifests of one place."""

    def __init__(self, uri: str, access: dict[str, Any]) -> None:
        self.uri = uri
        self.store: Store = open_store(uri.rstrip("/") + "/", access) if "://" in uri else open_store(uri, access)
        self._manifests = open_store(f"{uri.rstrip('/')}/manifests" + ("/" if "://" in uri else ""), access)

    def numbers(self) -> list[int]:
        """The numbers of all manifests, the newest first."""
        try:
            names = [item.name for item in self._manifests.items()]
        except (FileNotFoundError, NotADirectoryError):
            return []
        except OSError as error:
            raise self._manifests.explain(error) from None
        return sorted((int(match[1]) for name in names if (match := _NAME.fullmatch(name))), reverse=True)

    def read(self, number: int) -> Manifest | None:
        """The manifest of that number; None: it isn't there any more, or isn't whole."""
        try:
            data = self._manifests.read(_name(number))
        except OSError as error:
            raise self._manifests.explain(error) from None
        return None if data is None else Manifest.decode(data)

    def newest(self) -> Manifest | None:
        """The newest whole one; None where there is none."""
        return next((found for number in self.numbers() if (found := self.read(number)) is not None), None)

    def write(self, manifest: Manifest) -> None:
        self._manifests.write(_name(manifest.number), manifest.encode())

    def prune(self, keep: int, job: str) -> int:
        """Removes this job's manifests but the ``keep`` newest, then the files that only they named; returns how many
        manifests went.
        """
        numbers = self.numbers()
        manifests = {number: self.read(number) for number in numbers}
        kept = [number for number in numbers if manifests[number] is not None][: max(1, keep)]
        old = [number for number in numbers if number not in kept and number < min(kept, default=0)]
        gone = [(number, its) for number in old if (its := manifests[number]) is not None and its.job == job]
        if not gone:
            return 0
        self._manifests.delete([_name(number) for number, _ in gone])
        named = {
            entry.key
            for number, its in manifests.items()
            if its is not None and number not in dict(gone)
            for entry in its.files
        }
        self.store.delete(sorted({entry.key for _, its in gone for entry in its.files} - named))
        return len(gone)


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
    found: dict[str, Entry] = {}
    for parts in families.values():
        for entry in sorted(_of_family(parts, place, hosts, which), key=lambda each: (each.place != place, each.place)):
            found.setdefault(entry.path, entry)
    return list(found.values())


def _of_family(parts: list[Part], place: int, hosts: int, which: str) -> list[Entry]:
    entries = [entry for part in parts for entry in part.files]
    if which != "own" or any(part.hosts != hosts for part in parts):
        return entries
    places = {entry.place for entry in entries}
    source = place if place in places else min(places, default=0)
    return [entry for entry in entries if entry.everywhere or entry.place == source]
