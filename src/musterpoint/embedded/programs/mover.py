"""Moves data between a store and this host's disk: a program of its own, in a Python that has the store's library.

Facts go to stdout, one JSON object a line; the last is ``done``, ``lacks`` (a library) or ``error``. It ends at once
when stdin does. :data:`ACTIONS` has what it can do.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import signal
import sys
import tarfile
import threading
import time
from typing import Any, Callable, Sequence

from musterpoint.embedded.programs.checkpoint_manifest import Shelf
from musterpoint.embedded.programs.checkpoint_restore import restore
from musterpoint.embedded.programs.crowd import Progress, emit, patiently
from musterpoint.embedded.programs.store_s3 import open_store
from musterpoint.embedded.programs.stores import UNKNOWN, Item, Lacks, Store, StoreError
from musterpoint.embedded.programs.transfers import (
    Outgoing,
    checked,
    fetch_all,
    files_below,
    free,
    left_out,
    link_inside,
    scratch,
    send_all,
    sharded,
    size_of,
)

MOST_ASKED = 100
"""Files that are asked for one by one after they were sent; where there are more, the place is listed."""
PROBE = 64 * 1024**2
"""Bytes that are written and read to measure a place."""
PROBE_STEP = 1024**2
PROBE_SECONDS = 5.0
PROBE_ITEMS = 1000
"""Files that are looked at for a large one to read."""
PROBE_NAME = "muster-probe"


def tell(progress: Progress) -> None:
    emit(progress=list(progress))


def note(sentence: str) -> None:
    emit(note=sentence)


def main(request: dict[str, Any]) -> int:
    """``request``: ``action`` and what it takes; ``access``: region and endpoint of S3."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=end_with_stdin, daemon=True).start()
    code = 0
    try:
        emit(done=ACTIONS[request["action"]](request))
    except Lacks as error:
        emit(lacks=str(error))
        code = 1
    except StoreError as error:
        emit(error=str(error), missing=error.missing, passing=error.passing)
        code = 1
    except OSError as error:
        emit(error=f"{error.filename}: {error.strerror}" if error.filename else str(error))
        code = 1
    os._exit(code)  # without waiting for threads of the network


def end_with_stdin() -> None:
    while sys.stdin.readline():
        pass
    os._exit(1)


def listed(request: dict[str, Any]) -> tuple[Store, list[Item]]:
    """The store of a channel, and the items that this host gets."""
    store = open_store(request["uri"], request["access"])
    emit(opened=True)
    try:
        if request["names"]:
            items = _named(store, request["names"])
        elif request["manifest"]:
            store, items = _of_manifest(store, request)
        else:
            items = checked(store.items(), store.place)
            if not items and request["prefix"] and request["uri"].count("/") > 2:
                store, items = _of_prefix(request)
    except (FileNotFoundError, NotADirectoryError):
        items = []
    except OSError as error:
        raise store.explain(error) from None
    if not items:
        raise StoreError(f"there is nothing at {request['uri']}: expected a file, or files below it", missing=True)
    return store, sharded(items, request["place"], request["hosts"]) if request["sharded"] else items


def _named(store: Store, names: Sequence[str]) -> list[Item]:
    found = []
    for name in names:
        item = store.item(name)
        if item is None:
            raise store.refusal(name)
        found.append(item)
    return checked(found, store.place)


def _of_prefix(request: dict[str, Any]) -> tuple[Store, list[Item]]:
    """The files whose names begin with the URI's last part."""
    above, slash, begin = request["uri"].rpartition("/")
    store = open_store(above + slash, request["access"])
    return store, checked((item for item in store.items() if item.name.startswith(begin)), request["uri"])


def _of_manifest(store: Store, request: dict[str, Any]) -> tuple[Store, list[Item]]:
    """The files of SageMaker's ManifestFile, in its order: a prefix, and names below it."""
    text = text_of(store, request["uri"])
    try:
        prefix, *names = json.loads(text)
        place = prefix["prefix"]
        if not all(isinstance(name, str) for name in names):
            raise TypeError
    except (ValueError, TypeError, KeyError):
        raise StoreError(
            f'{request["uri"]} is no manifest: expected a JSON list, first {{"prefix": URI}}, then names below it'
        ) from None
    if not str(place).endswith("/"):
        place += "/"
    below = open_store(place, request["access"])
    found: list[Item] = []
    wanted = set(names)
    if len(names) > 1000:
        found = [item for item in below.items() if item.name in wanted]
    else:
        found = [item for item in map(below.item, names) if item is not None]
    if missing := wanted - {item.name for item in found}:
        raise StoreError(f"{request['uri']} names {min(missing)!r}, which isn't below {place}", missing=True)
    by_name = {item.name: item for item in checked(found, place)}
    return below, [by_name[name] for name in dict.fromkeys(names)]


def text_of(store: Store, uri: str) -> bytes:
    """The one file at ``uri``, the place of ``store``.

    Raises:
        StoreError: there is none.
    """
    item = next(iter(store.items()), None)
    if item is None:
        raise StoreError(f"there is nothing at {uri}: expected a file", missing=True)
    return b"".join(store.stream(item))


def fetch(request: dict[str, Any]) -> dict[str, Any]:
    """Brings a channel: ``uri``, ``manifest``, ``sharded`` (``place`` of ``hosts``), ``directory``; of the
    files there all, or those of ``names``. ``prefix``: where there is nothing, what begins with the URI counts."""
    store, items = patiently(lambda: listed(request), note)
    emit(found=len(items), bytes=size_of(items))
    began = time.monotonic()
    totals = fetch_all(store, items, request["directory"], tell, note)
    return {**totals._asdict(), "seconds": time.monotonic() - began}


def measure(request: dict[str, Any]) -> dict[str, Any]:
    """How much a channel has for this host."""
    _, items = listed(request)
    return {"files": len(items), "bytes": size_of(items)}


def send(request: dict[str, Any]) -> dict[str, Any]:
    """Sends what lies in ``directory`` to ``uri``: each file, or those of ``names``; with ``archive`` all
    as one ``.tar.gz`` of that name."""
    store, began = open_store(request["uri"], request["access"]), time.monotonic()
    until = None if request["seconds"] is None else began + request["seconds"]
    directory, name = request["directory"], request["archive"]
    with contextlib.ExitStack() as kept:
        if name:
            path = os.path.join(kept.enter_context(scratch(request["scratch"])), "archive")
            pack(directory, path)
            files = [Outgoing(path, name, os.path.getsize(path))]
        else:
            files = _files_of(directory, request["names"]) or files_below(directory, note)
        totals = send_all(store, files, tell, note, until)
    check_sent(store, files)
    return {**totals._asdict(), "seconds": time.monotonic() - began}


def check_sent(store: Store, files: Sequence[Outgoing]) -> None:
    """Compares what is at the store with what was sent.

    Raises:
        StoreError: another has written under the same name.
    """
    asked = (store.item(file.name) for file in files)
    there = {item.name: item for item in (asked if len(files) <= MOST_ASKED else store.items()) if item is not None}
    for file in files:
        found = there.get(file.name)
        if found is None or found.size not in (UNKNOWN, file.size):
            what = "isn't there" if found is None else f"has {found.size:,} bytes there"
            raise StoreError(
                f"{store.place}: {file.name} was sent with {file.size:,} bytes, and {what}: another writes there"
            )


def _files_of(directory: str, names: Sequence[str]) -> list[Outgoing]:
    paths = [(os.path.join(directory, name), name) for name in names]
    return [Outgoing(path, name, os.path.getsize(path)) for path, name in paths]


def pack(directory: str, path: str) -> None:
    """All of ``directory`` as a ``.tar.gz``, as SageMaker packs a model. Links that lead out of it are left out."""
    root = os.path.realpath(directory)
    size = sum(file.size for file in files_below(root))

    def member(info: tarfile.TarInfo) -> tarfile.TarInfo | None:
        if info.issym():
            link = os.path.join(root, info.name)
            target = link_inside(root, link)
            if target is None:
                note(left_out(root, info.name, link))
                return None
            info.linkname = target
        return info

    if size > (room := free(os.path.dirname(path))) * 4:
        raise StoreError(f"{directory} has {size:,} bytes, and {os.path.dirname(path)} has room for {room:,}")
    with tarfile.open(path, "w:gz", compresslevel=1) as archive:
        for name in sorted(os.listdir(root)):
            archive.add(os.path.join(root, name), arcname=name, filter=member)


def probe(request: dict[str, Any]) -> dict[str, Any]:
    """Bytes per second to and from ``uri``, by files that are removed again; ``writes`` False: by reading only.
    ``checkpoints``: with the bytes of the newest one there. It says when the place is opened, and when it answers.
    """
    store = open_store(request["uri"], request["access"])
    emit(opened=True)
    if not request["writes"]:
        return {"read": _read_speed(store), "write": None, "newest": 0}
    name = f"{PROBE_NAME}-{os.getpid()}"
    try:
        took = _there_and_back(store, name, PROBE_STEP)
        emit(answers=True)
        steps = max(1, min(PROBE // PROBE_STEP, int(PROBE_SECONDS / max(1e-6, sum(took)))))
        written, read = _there_and_back(store, name, steps * PROBE_STEP)
    finally:
        store.delete([name])
    newest = Shelf(request["uri"], request["access"]).newest() if request["checkpoints"] else None
    size = steps * PROBE_STEP
    return {"write": size / written, "read": size / read, "newest": newest.size if newest is not None else 0}


def _read_speed(store: Store) -> float | None:
    items = store.items()
    item = next(items, None)
    emit(answers=True)
    if item is None:
        raise StoreError(f"there is nothing at {store.place}: expected a file, or files below it", missing=True)
    item = max(itertools.chain((item,), itertools.islice(items, PROBE_ITEMS)), key=lambda each: each.size)
    began, size = time.monotonic(), 0
    for piece in store.stream(item):
        size += len(piece)
        if size >= PROBE or time.monotonic() - began > PROBE_SECONDS:
            break
    return size / max(1e-6, time.monotonic() - began) if size >= PROBE_STEP else None


def _there_and_back(store: Store, name: str, size: int) -> tuple[float, float]:
    """Seconds that it takes to write so many bytes and to read them."""
    data = os.urandom(PROBE_STEP) * (size // PROBE_STEP)
    began = time.monotonic()
    store.write(name, data)
    written = time.monotonic()
    if store.read(name) != data:
        raise StoreError(f"{store.place}: what was written isn't what is read")
    return max(1e-6, written - began), max(1e-6, time.monotonic() - written)


def restore_checkpoint(request: dict[str, Any]) -> dict[str, Any]:
    """See :func:`musterpoint.embedded.programs.checkpoint_restore.restore`."""
    return restore(request, tell, note)


def newest(request: dict[str, Any]) -> dict[str, Any]:
    """The newest whole checkpoint at ``uri``; nothing where there is none."""
    shelf = Shelf(request["uri"], request["access"])
    emit(opened=True)
    found = patiently(shelf.newest, note)
    if found is None:
        return {}
    return {
        "number": found.number,
        "job": found.job,
        "hosts": found.hosts,
        "names": list(found.names),
        "files": len(found.files),
        "bytes": found.size,
    }


ACTIONS: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
    "fetch": fetch,
    "measure": measure,
    "send": send,
    "probe": probe,
    "restore": restore_checkpoint,
    "newest": newest,
}
