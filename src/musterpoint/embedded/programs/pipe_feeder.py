"""Feeds a channel's named pipes, epoch after epoch, until its stdin ends.

Runs in a Python that may not have musterpoint.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from typing import Any, Iterator

from musterpoint.embedded.programs.crowd import Tries, emit, patiently
from musterpoint.embedded.programs.mover import end_with_stdin, listed, note, text_of
from musterpoint.embedded.programs.open_store import open_store
from musterpoint.embedded.programs.pipes import Part, Pipe, Piped, of_augmented_manifest
from musterpoint.embedded.programs.stores import Item, Lacks, Store, StoreError


def main(request: dict[str, Any]) -> int:
    """``request``: what the mover's ``fetch`` has of a channel; ``path``, to which ``_EPOCH`` is added; ``records``:
    each file is a RecordIO record; ``gzip``: files are unpacked; ``seed``: each epoch's order is drawn from it (None:
    it stays). ``attributes``: the file at ``uri`` is an augmented manifest, of whose lines these are read, if any.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=end_with_stdin, daemon=True).start()
    try:
        source = Referred(request) if request["attributes"] else Listed(request)
        piped = Piped(source.parts, request["records"], request["gzip"], request["seed"])
        Pipe(request["path"], piped, source.open, lambda error: emit(error=str(source.store.explain(error))))
        emit(done={"files": len(source.parts), "bytes": source.size})
    except Lacks as error:
        emit(lacks=str(error))
        os._exit(1)
    except StoreError as error:
        emit(error=str(error), missing=error.missing, passing=error.passing)
        os._exit(1)
    except OSError as error:
        emit(error=f"{error.filename}: {error.strerror}" if error.filename else str(error))
        os._exit(1)
    while True:
        signal.pause()


class Listed:
    """What lies at a channel's place. ``size``: bytes."""

    def __init__(self, request: dict[str, Any]) -> None:
        self.store, items = patiently(lambda: listed(request), note)
        self._items = {item.name: item for item in items}
        self.parts = [Part(uri=item.name) for item in items]
        self.size = sum(item.size for item in items)

    def open(self, name: str) -> Iterator[bytes]:
        return content(self.store, self._items[name])


class Referred:
    """What the lines of an augmented manifest name, by URIs of any place; each host has its share of the lines.

    ``size``: bytes of what stands in the manifest itself.
    """

    def __init__(self, request: dict[str, Any]) -> None:
        uri, self._access = request["uri"], request["access"]
        self.store, self._stores = open_store(uri, self._access), dict[str, Store]()
        try:
            text = patiently(lambda: self._read(uri), note).decode()
            lines = of_augmented_manifest(text, request["attributes"])
        except (ValueError, LookupError, TypeError) as error:
            names = ", ".join(request["attributes"])
            raise StoreError(f"{uri}: expected a JSON object in each line, with {names}: {error!r}") from None
        if request["sharded"]:
            lines = lines[request["place"] :: request["hosts"]]
        self.parts = [part for line in lines for part in line]
        self.size = sum(len(part.data) for part in self.parts)
        for part in self.parts:
            if part.uri and _scheme(part.uri) != _scheme(uri):  # a manifest on S3 reads no files of this host
                raise StoreError(f"{uri} names {part.uri!r}: expected a place of its own kind")

    def _read(self, uri: str) -> bytes:
        try:
            return text_of(self.store, uri)
        except OSError as error:
            raise self.store.explain(error) from None

    def open(self, uri: str) -> Iterator[bytes]:
        folder, slash, name = uri.rpartition("/")
        if folder not in self._stores:
            self._stores[folder] = open_store(folder + slash, self._access)
        return content(self._stores[folder], Item(name, -1, ""))


def _scheme(uri: str) -> str:
    return uri.partition("://")[0] if "://" in uri else ""


def content(store: Store, item: Item) -> Iterator[bytes]:
    """A file, in pieces; after a failure that may pass it goes on where it was, with the same version. Of one that
    wasn't listed the size is negative.
    """
    tries, at = Tries(note), 0
    while True:
        try:
            if not at:  # it may have been replaced since it was listed
                found = store.item(item.name)
                if found is None and item.size < 0:
                    raise store.refusal(item.name)
                item = found or item
            for piece in store.stream(item, at):
                at += len(piece)
                tries.succeeded()
                yield piece
            if at >= item.size:
                return
            raise StoreError(f"{item.name} ended at byte {at:,} of {item.size:,}", passing=True)
        except (StoreError, OSError) as error:
            tries.failed(store.explain(error))
        time.sleep(max(0.0, tries.resume_at - time.monotonic()))
