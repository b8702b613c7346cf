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
from typing import Any, Iterable, NamedTuple

from musterpoint.embedded.programs.open_store import open_store
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


class Manifest(NamedTuple):
    """One state of the checkpoints: the newest whole one of each family.

    ``number``: manifests count up. ``job``: whose it is. ``hosts``: how many wrote it. ``names``: its checkpoints.
    ``texts``: small files that name a checkpoint, and what they say of these.
    """

    number: int
    job: str
    hosts: int
    names: tuple[str, ...]
    files: tuple[Entry, ...]
    texts: dict[str, str]

    @property
    def size(self) -> int:
        return sum(entry.size for entry in self.files)

    def encode(self) -> bytes:
        content = {**self._asdict(), "version": VERSION, "files": [list(entry) for entry in self.files]}
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
        files = tuple(Entry(*entry) for entry in content.pop("files"))
        return cls(files=files, names=tuple(content.pop("names")), **content)


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
    entries: Iterable[Entry] = manifest.files
    if which == "own" and hosts == manifest.hosts:
        owns = any(entry.place == place for entry in manifest.files)
        first = min((entry.place for entry in manifest.files), default=0)
        source = place if owns else first
        entries = [entry for entry in manifest.files if entry.everywhere or entry.place == source]
    found: dict[str, Entry] = {}
    for entry in sorted(entries, key=lambda entry: (entry.place != place, entry.place)):
        found.setdefault(entry.path, entry)
    return list(found.values())
