"""Brings the newest whole checkpoint to a directory, byte for byte."""

from __future__ import annotations

import hashlib
import os
import shutil
import time
from typing import Any, Callable

from musterpoint.embedded.programs.checkpoint_manifest import Entry, Manifest, Shelf, for_host
from musterpoint.embedded.programs.crowd import Crowd, Job, Note, Tell, patiently
from musterpoint.embedded.programs.stores import Item, StoreError
from musterpoint.embedded.programs.transfers import free, state_folder

_PIECE = 4 << 20
SAID = "said/paths"
"""The file of our folder into which programs write what they say is whole."""
EARLIER = "earlier"
"""The folder of what was in the directory and is no part of the checkpoint."""


def sha256_of(path: str) -> str:
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while piece := file.read(_PIECE):
            digest.update(piece)
    return digest.hexdigest()


def check_job(manifest: Manifest, job: str, uri: str) -> None:
    """Raises a StoreError where the checkpoint is another job's."""
    if manifest.job != job:
        raise StoreError(
            f"{uri} has checkpoints of the job {manifest.job!r}, and this is {job!r}: name another place, or this job "
            "as that one (--job-name, where the platform gives no name)"
        )


def restore(request: dict[str, Any], tell: Tell, note: Note) -> dict[str, Any]:
    """``uri``, ``directory``, ``place`` of ``hosts``, ``which``, ``job``, and ``number``: of one manifest, which the
    hosts have agreed on; None: the newest, 0: none. Returns what there is now.
    """
    began, directory, number = time.monotonic(), request["directory"], request["number"]
    said = os.path.join(state_folder(directory), os.path.dirname(SAID))
    shutil.rmtree(said, ignore_errors=True)
    os.makedirs(said, exist_ok=True)
    shelf = Shelf(request["uri"], request["access"])
    manifest = patiently(lambda: shelf.newest() if number is None else shelf.read(number) if number else None, note)
    if number and manifest is None:
        raise StoreError(f"{shelf.uri}: checkpoint {number}, which the hosts have agreed on, is gone", missing=True)
    if manifest is None:
        moved = _move_away(directory, state_folder(directory), set()) if number == 0 else 0
        return _restored(0, (), [], moved, began)
    check_job(manifest, request["job"], request["uri"])
    entries = for_host(manifest, request["place"], request["hosts"], request["which"])
    if request["which"] == "leader" and request["place"]:
        return _restored(manifest.number, (), [], 0, began)
    try:
        moved = _bring(shelf, manifest, entries, request, said, tell, note)
    except StoreError as error:
        if not error.missing or number is not None or shelf.newest() in (None, manifest):
            raise
        note(f"{error}; there is a newer one")
        return restore(request, tell, note)
    return _restored(manifest.number, manifest.names, entries, moved, began)


def _restored(number: int, names: tuple[str, ...], entries: list[Entry], moved: int, began: float) -> dict[str, Any]:
    size = sum(entry.size for entry in entries)
    what = {"number": number, "names": list(names), "files": len(entries), "bytes": size, "moved": moved}
    return {"found": bool(number), **what, "seconds": time.monotonic() - began}


def _bring(
    shelf: Shelf, manifest: Manifest, entries: list[Entry], request: dict[str, Any], said: str, tell: Tell, note: Note
) -> int:
    """Makes the directory have ``entries`` and nothing else; returns how many other files were moved away."""
    directory = request["directory"]
    os.makedirs(directory, exist_ok=True)
    state = state_folder(directory)
    parts = os.path.join(state, f"restore-{request['place']}")
    shutil.rmtree(parts, ignore_errors=True)
    os.makedirs(parts)
    try:
        missing = [entry for entry in entries if not _is_here(os.path.join(directory, entry.path), entry)]
        _fetch(shelf, missing, parts, tell, note)
        texts = manifest.texts if entries else {}
        moved = _move_away(directory, state, {entry.path for entry in manifest.files} | set(texts))
        for number, entry in enumerate(missing):
            _place(os.path.join(parts, str(number)), os.path.join(directory, entry.path))
        for path, text in texts.items():
            part = os.path.join(parts, "text")
            with open(part, "w", encoding="utf-8") as file:
                file.write(text)
            _place(part, os.path.join(directory, path))
        with open(os.path.join(said, "restored"), "w", encoding="utf-8", errors="surrogateescape") as file:
            file.write("".join(f"{os.path.join(os.path.abspath(directory), name)}\n" for name in manifest.names))
        return moved
    finally:
        shutil.rmtree(parts, ignore_errors=True)


def _is_here(path: str, entry: Entry) -> bool:
    try:
        return os.path.getsize(path) == entry.size and sha256_of(path) == entry.sha256
    except OSError:
        return False


def _place(part: str, path: str) -> None:
    while True:
        try:
            os.makedirs(os.path.dirname(path), exist_ok=True)
            os.replace(part, path)
            return
        except FileNotFoundError:  # another host of the same disk has just removed a folder that was empty
            if not os.path.exists(part):
                raise


def _fetch(shelf: Shelf, entries: list[Entry], parts: str, tell: Tell, note: Note) -> None:
    size = sum(entry.size for entry in entries)
    if size > (room := free(parts)):
        raise StoreError(f"the checkpoint has {size:,} bytes, and the disk of {parts} has room for {room:,}")

    def begin(job: Job, on_bytes: Callable[[int], None], on_done: Callable[[Any], None]) -> None:
        def done(error: Any) -> None:
            found = None if error is None else shelf.store.explain(error)
            if found is not None and found.missing:
                found = StoreError(
                    f"{shelf.uri}: {entries[job.number].key} is gone, which its manifest names", missing=True
                )
            on_done(found)

        shelf.store.fetch(Item(job.name, job.size, ""), os.path.join(parts, str(job.number)), on_bytes, done)

    tries: dict[int, int] = {}

    def ended(job: Job) -> bool:
        entry, path = entries[job.number], os.path.join(parts, str(job.number))
        if os.path.getsize(path) == entry.size and sha256_of(path) == entry.sha256:
            return True
        tries[job.number] = tries.get(job.number, 0) + 1
        if tries[job.number] > 1:
            raise StoreError(f"{shelf.uri}: {entry.key} isn't what its manifest says ({entry.path})")
        return False

    jobs = [Job(number, entry.key, entry.size) for number, entry in enumerate(entries)]
    Crowd(tell, note).run(jobs, begin, ended, shelf.store.cancel)


def _move_away(directory: str, state: str, wanted: set[str]) -> int:
    """Moves what is no part of the checkpoint out of the way, since a program might take it for a newer one. Empty
    folders are removed. Returns how many files were moved.
    """
    others = []
    for folder, folders, names in os.walk(directory):
        folders[:] = [name for name in folders if not name.startswith(".muster-")]
        for name in names:
            path = os.path.relpath(os.path.join(folder, name), directory)
            if path not in wanted and not name.startswith(".muster-"):
                others.append(path)
    aside = os.path.join(state, EARLIER)
    if others:
        shutil.rmtree(aside, ignore_errors=True)
    for path in others:
        target = os.path.join(aside, path)
        os.makedirs(os.path.dirname(target), exist_ok=True)
        try:
            os.rename(os.path.join(directory, path), target)
        except FileNotFoundError:  # another host of the same disk has
            pass
    for folder, _folders, _names in os.walk(directory, topdown=False):
        if folder != directory and f"{os.sep}.muster-" not in folder[len(directory) :]:
            try:
                os.rmdir(folder)
            except OSError:
                pass
    return len(others)
