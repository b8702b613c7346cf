"""Brings the newest whole checkpoint to a directory, byte for byte."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import stat
import time
from typing import Any, BinaryIO, Container, Mapping

from musterpoint.base.below import Below, notes_of
from musterpoint.embedded.programs.checkpoint_look import OWN, owned
from musterpoint.embedded.programs.checkpoint_manifest import Entry, Manifest, Shelf, for_host, not_its
from musterpoint.embedded.programs.transfer import Crowd, DirectoryStore, Terms, free, patiently
from musterpoint.embedded.programs.transfer_s3 import Again, Item, OnBytes, StoreError

_PIECE = 4 << 20
SAID_FOLDER, SAID = "said", "said/paths"
"""In our folder: the file into which programs write what they say is whole."""
EARLIER = "earlier"
"""The folder of what was in the directory and is no part of the checkpoint."""


def sha256_of(path: str) -> str:
    with open(path, "rb") as file:
        return digest_of(file)


def digest_of(file: BinaryIO) -> str:
    digest = hashlib.sha256()
    while piece := file.read(_PIECE):
        digest.update(piece)
    return digest.hexdigest()


def restore(request: dict[str, Any], terms: Terms) -> dict[str, Any]:
    """``uri``, ``directory``, ``place`` of ``hosts``, ``which``, ``job``, ``number``: of one manifest, which the hosts
    have agreed on; None: the newest, 0: none; ``claims``: the host for which the place becomes this start's, or empty.
    Returns what there is now.
    """
    began, directory = time.monotonic(), request["directory"]
    os.makedirs(directory, exist_ok=True)
    write_owned(directory, request["job"])
    said = os.path.join(notes_of(directory), SAID_FOLDER)
    shutil.rmtree(said, ignore_errors=True)
    os.makedirs(said, exist_ok=True)
    shelf = Shelf(request["uri"], request["access"])
    owner = 0
    if request["claims"]:  # before the newest is looked for: an earlier start keeps nothing more from then on
        before = patiently(shelf.newest, terms)
        if before is not None and before.job != request["job"]:
            raise not_its(request["uri"], before.job, request["job"])
        owner = patiently(lambda: shelf.claim(request["job"], request["claims"]), terms)
    found = _restored_from(shelf, request, terms)
    return {**found, "owner": owner, "seconds": time.monotonic() - began}


def write_owned(directory: str, job: str) -> None:
    """Writes down which files are there before the first start of ``job``, unless that was done: the user's own. They
    are others' too, where another job has had the directory before.
    """
    store = DirectoryStore(notes_of(directory, make=True))
    before = store.read(OWN)
    if before is not None and job_of(before) == job:
        return
    found = [
        (path, -1 if stat.S_ISDIR(facts.st_mode) else facts.st_size, facts.st_mtime_ns)
        for path, facts in Below(directory).walk()
    ]
    # another host of the job may have been quicker
    store.write(OWN, json.dumps({"job": job, "files": found}).encode(), only_new=before is None)


def job_of(data: bytes) -> str:
    """The job for which the user's own files were written down; empty: half a file."""
    try:
        return str(json.loads(data)["job"])
    except (ValueError, TypeError, KeyError):
        return ""


def _restored_from(shelf: Shelf, request: dict[str, Any], terms: Terms) -> dict[str, Any]:
    directory, number = request["directory"], request["number"]
    manifest = patiently(lambda: shelf.newest() if number is None else shelf.read(number) if number else None, terms)
    if number and manifest is None:
        raise StoreError(f"{shelf.uri}: checkpoint {number}, which the hosts have agreed on, is gone", missing=True)
    if manifest is None:
        moved = _move_away(directory, set(), owned(directory)) if number == 0 else 0
        return _restored(0, (), [], moved)
    if manifest.job != request["job"]:
        raise not_its(request["uri"], manifest.job, request["job"])
    entries = for_host(manifest, request["place"], request["hosts"], request["which"])
    if request["which"] == "leader" and request["place"]:
        return _restored(manifest.number, (), [], 0)
    try:
        moved = _bring(shelf, manifest, entries, request, terms)
    except StoreError as error:
        if not error.missing or number is not None or shelf.newest() in (None, manifest):
            raise
        terms.note(f"{error}; there is a newer one")
        return _restored_from(shelf, request, terms)
    return _restored(manifest.number, manifest.names, entries, moved)


def _restored(number: int, names: tuple[str, ...], entries: list[Entry], moved: int) -> dict[str, Any]:
    size = sum(entry.size for entry in entries)
    return {"number": number, "names": list(names), "files": len(entries), "bytes": size, "moved": moved}


def _bring(shelf: Shelf, manifest: Manifest, entries: list[Entry], request: dict[str, Any], terms: Terms) -> int:
    """Makes the directory have ``entries`` and nothing else but the user's own files; returns how many other files were
    moved away.
    """
    directory, notes = request["directory"], notes_of(request["directory"])
    own, tree, parts = owned(directory), Below(directory), os.path.join(notes, f"restore-{request['place']}")
    shutil.rmtree(parts, ignore_errors=True)
    os.makedirs(parts)
    try:
        missing = [entry for entry in entries if not _is_here(tree, entry)]
        texts = manifest.texts if entries else {}
        for path in (*(entry.path for entry in missing), *texts):
            _check_clash(tree, path, own, shelf.uri)
        _fetch(shelf, [entry for entry in missing if not entry.link], parts, terms)
        wanted = {entry.path for entry in manifest.files} | set(texts)
        moved = _move_away(directory, wanted, own)
        number = 0
        for entry in sorted(missing, key=lambda entry: bool(entry.link)):
            part = os.path.join(parts, str(number))
            if entry.link:
                part = os.path.join(parts, "link")
                os.symlink(entry.link, part)
            else:
                number += 1
                if entry.changed:  # programs look for the newest by the times
                    os.utime(part, ns=(entry.changed, entry.changed))
            tree.put(part, entry.path)
        for path, text in texts.items():
            part = os.path.join(parts, "text")
            with open(part, "w", encoding="utf-8") as file:
                file.write(text)
            tree.put(part, path)
        with open(
            os.path.join(notes, SAID_FOLDER, "restored"), "w", encoding="utf-8", errors="surrogateescape"
        ) as file:
            file.write("".join(f"{os.path.join(os.path.abspath(directory), name)}\n" for name in manifest.names))
        return moved
    finally:
        shutil.rmtree(parts, ignore_errors=True)


def _check_clash(tree: Below, path: str, own: Mapping[str, tuple[int, int]], uri: str) -> None:
    """Raises where a file of the checkpoint would take the place of one of the user's."""
    parts = path.split("/")
    for at in range(1, len(parts) + 1):
        name = "/".join(parts[:at])
        size, changed = own.get(name, (-1, 0))
        facts = tree.facts(name) if name in own else None
        is_ours = facts is None or (facts.st_size, facts.st_mtime_ns) != (size, changed)  # or the job has written it
        if is_ours if size >= 0 else facts is None or at < len(parts):
            continue
        raise StoreError(
            f"{tree.path(name)} was there before the job's first start, and the checkpoint at {uri} has "
            f"{path}: move yours away, or keep checkpoints in another directory (SM_CHECKPOINT_DIR)"
        )


def _is_here(tree: Below, entry: Entry) -> bool:
    if entry.link:
        return tree.target(entry.path) == entry.link
    try:
        facts = tree.facts(entry.path)
        if facts is None or facts.st_size != entry.size:
            return False
        with tree.file(entry.path) as file:
            return digest_of(file) == entry.sha256
    except OSError:
        return False


def _fetch(shelf: Shelf, entries: list[Entry], parts: str, terms: Terms) -> None:
    size = sum(entry.size for entry in entries)
    if size > (room := free(parts)):
        raise StoreError(f"the checkpoint has {size:,} bytes, and the disk of {parts} has room for {room:,}")

    def move(number: int, on_bytes: OnBytes) -> None:
        entry, path = entries[number], os.path.join(parts, str(number))
        try:
            shelf.store.get(Item(entry.key, entry.size, ""), path, on_bytes)
        except StoreError as error:
            if error.missing:
                raise StoreError(f"{shelf.uri}: {entry.key} is gone, which its manifest names", missing=True) from None
            raise
        if os.path.getsize(path) != entry.size or sha256_of(path) != entry.sha256:
            raise Again(f"{shelf.uri}: {entry.key} isn't what its manifest says ({entry.path})")

    Crowd(shelf.store, terms).run([entry.size for entry in entries], move)


def _move_away(directory: str, wanted: set[str], own: Container[str]) -> int:
    """Moves what is neither ``wanted`` nor the user's ``own`` out of the way, since a program might take it for a newer
    checkpoint. Empty folders are removed. Returns how many files were moved.
    """
    tree, others, emptied = Below(directory), list[str](), list[str]()
    for path, facts in tree.walk():
        if path not in own and stat.S_ISDIR(facts.st_mode):
            emptied.append(path)
        elif path not in own and path not in wanted:
            others.append(path)
    aside = os.path.join(notes_of(directory), EARLIER)
    if others:
        shutil.rmtree(aside, ignore_errors=True)
    for path in others:
        with contextlib.suppress(FileNotFoundError):  # another host of the same disk has
            tree.move(path, Below(aside))
    for path in sorted(emptied, key=len, reverse=True):
        with contextlib.suppress(OSError):
            tree.remove_folder(path)
    return len(others)
