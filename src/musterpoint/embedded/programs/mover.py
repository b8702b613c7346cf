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
import stat
import sys
import tempfile
import threading
import time
from typing import Any, BinaryIO, Callable, Iterator, Sequence

from musterpoint.base.below import Archive, Changed, ForeignName, Tree, parts_of
from musterpoint.embedded.programs.checkpoint_manifest import Shelf
from musterpoint.embedded.programs.checkpoint_restore import restore
from musterpoint.embedded.programs.transfer import (
    Outgoing,
    Terms,
    checked,
    emit,
    free,
    get_all,
    open_store,
    patiently,
    put_all,
    size_of,
)
from musterpoint.embedded.programs.transfer_s3 import UNKNOWN, Item, Lacks, Store, StoreError, os_words

MOST_ASKED, MOST_SENT = 1000, 100
"""Files of a list, and files that were sent, that are asked for one by one; where there are more, the place is listed.
"""
PROBE = 64 * 1024**2
"""Bytes that are written and read to measure a place."""
PROBE_STEP = 1024**2
PROBE_SECONDS = 5.0
PROBE_ITEMS = 1000
"""Files that are looked at for a large one to read."""
PROBE_NAME = "muster-probe"


def note(sentence: str) -> None:
    emit(note=sentence)


TERMS = Terms(lambda progress: emit(progress=list(progress)), note)


def main(request: dict[str, Any]) -> int:
    """``request``: ``action`` and what it takes; ``access``: region and endpoint of S3."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=end_with_stdin, daemon=True).start()
    code = 1
    try:
        emit(done=ACTIONS[request["action"]](request))
        code = 0
    except Lacks as error:
        emit(lacks=str(error))
    except StoreError as error:
        emit(error=str(error), missing=error.missing, passing=error.passing)
    except ForeignName as error:
        emit(error=str(error))
    except OSError as error:
        emit(error=os_words(error))
    os._exit(code)  # without waiting for threads of the network


def end_with_stdin() -> None:
    while sys.stdin.readline():
        pass
    os._exit(1)


# -- what a channel has --


def listed(request: dict[str, Any]) -> tuple[Store, list[Item]]:
    """The store of a channel, and the items that this host gets."""
    uri = request["uri"]
    store = open_store(uri, request["access"])
    emit(opened=True)
    if request["names"]:
        items = checked([_named(store, name) for name in request["names"]], store.place)
    elif request["manifest"]:
        store, items = _of_manifest(store, request)
    else:
        items = checked(store.items(), store.place)
        above, slash, begin = uri.rpartition("/")
        if request["prefix"] and begin and uri.count("/") > 2:
            wider = open_store(above + slash, request["access"])
            found = checked((item for item in wider.items(begin) if item.name.startswith(begin)), uri)
            beside = [item.name for item in found if item.name.partition("/")[0] != begin]
            if items and beside:
                emit(note=f"{above}/{beside[0]} begins with {uri}, too, and comes with it; {uri}/ leaves it out")
            if beside:  # names from the last slash on, as they aren't all below one folder
                store, items = wider, found
    if not items:
        raise StoreError(f"there is nothing at {uri}: expected a file, or files below it", missing=True)
    return store, items[request["place"] :: request["hosts"]] if request["sharded"] else items  # as ShardedByS3Key


def _named(store: Store, name: str) -> Item:
    item = store.item(name)
    if item is None:
        store.open(name).close()  # tells why, in the store's own words
        raise StoreError(f"there is no {name!r} at {store.place}", missing=True)
    return item


def _of_manifest(store: Store, request: dict[str, Any]) -> tuple[Store, list[Item]]:
    """The files of SageMaker's ManifestFile, in its order: a prefix, and names below it."""
    uri = request["uri"]
    item = next(iter(store.items()), None)
    if item is None:
        raise StoreError(f"there is nothing at {uri}: expected a file", missing=True)
    try:
        prefix, *names = json.loads(store.read(item.name) or b"")
        place = prefix["prefix"]
        if not all(isinstance(name, str) for name in (place, *names)):
            raise TypeError
    except (ValueError, TypeError, KeyError, RecursionError):
        raise StoreError(
            f'{uri} is no manifest: expected a JSON list, first {{"prefix": URI}}, then names below it'
        ) from None
    if _scheme(place) != _scheme(uri):
        raise StoreError(f"{uri} names {place!r}, which is a place of another kind: expected one as its own")
    if not place.endswith("/"):
        place += "/"
    source = open_store(place, request["access"])
    found = _of_names(source, names, MOST_ASKED)
    if missing := set(names) - set(found):
        raise StoreError(f"{uri} names {min(missing)!r}, which isn't below {place}", missing=True)
    checked(found.values(), place)
    return source, [found[name] for name in dict.fromkeys(names)]


def _scheme(place: str) -> str:
    """Empty: it is a path."""
    return place.partition("://")[0] if "://" in place else ""


def _of_names(store: Store, names: Sequence[str], most: int) -> dict[str, Item]:
    """Those of ``names`` that are at the store."""
    asked, wanted = (store.item(name) for name in names), set(names)
    found = (item for item in (asked if len(names) <= most else store.items()) if item is not None)
    return {item.name: item for item in found if item.name in wanted}


def fetch(request: dict[str, Any]) -> dict[str, Any]:
    """Brings a channel: ``uri``, ``manifest``, ``sharded`` (``place`` of ``hosts``), ``directory``; of the
    files there all, or those of ``names``. ``prefix``: all whose names begin with the URI."""
    store, items = patiently(lambda: listed(request), TERMS)
    began = time.monotonic()
    totals = get_all(store, items, request["directory"], TERMS)
    return {**totals._asdict(), "seconds": time.monotonic() - began}


def measure(request: dict[str, Any]) -> dict[str, Any]:
    """How much a channel has for this host."""
    _, items = listed(request)
    return {"files": len(items), "bytes": size_of(items)}


# -- what goes to a place --


def send(request: dict[str, Any]) -> dict[str, Any]:
    """Sends what lies in ``directory``, a real path, to ``uri``: each file, or those of ``names``; with ``archive`` all
    as one ``.tar.gz`` of that name."""
    store, began = open_store(request["uri"], request["access"]), time.monotonic()
    until = None if request["seconds"] is None else began + request["seconds"]
    directory, name, tree = request["directory"], request["archive"], Tree(request["directory"])
    with contextlib.ExitStack() as kept:
        if name:
            path = kept.enter_context(scratch(request["scratch"]))
            pack(directory, path, request["scratch"])
            files = [Outgoing(lambda: _opened(path), name, os.path.getsize(path))]
        elif request["names"]:
            files = [_outgoing(tree, name, name, tree.facts(name)) for name in request["names"]]
        else:
            files = list(files_below(directory, note))
        totals = put_all(store, files, TERMS._replace(until=until))
    patiently(lambda: check_sent(store, files), TERMS._replace(until=until))
    return {**totals._asdict(), "seconds": time.monotonic() - began}


def check_sent(store: Store, files: Sequence[Outgoing]) -> None:
    """Compares what is at the store with what was sent.

    Raises:
        StoreError: another has written under the same name.
    """
    there = _of_names(store, [file.name for file in files], MOST_SENT)
    for file in files:
        found = there.get(file.name)
        if found is None or found.size not in (UNKNOWN, file.size):
            what = "isn't there" if found is None else f"has {found.size:,} bytes there"
            raise StoreError(
                f"{store.place}: {file.name} was sent with {file.size:,} bytes, and {what}: another writes there"
            )


def _opened(path: str) -> BinaryIO:
    """A file of our own, to be read."""
    return open(path, "rb")


def _outgoing(tree: Tree, source: str, name: str, facts: os.stat_result | None) -> Outgoing:
    return Outgoing(lambda: tree.file(source), name, 0 if facts is None else facts.st_size)


def files_below(directory: str, say: Callable[[str], None] = lambda _: None) -> Iterator[Outgoing]:
    """Every file below ``directory``, a real path, to be sent under the same name. A link counts as the file, or
    folder, that it leads to below the directory; one that leads out of it is left out, which ``say`` hears.
    """
    return _files_of(Tree(directory), "", "", (), say)


def _files_of(
    tree: Tree, folder: str, shown: str, above: tuple[str, ...], say: Callable[[str], None]
) -> Iterator[Outgoing]:
    """Files of a ``folder``, which links call ``shown``, from the folders ``above``."""
    for source, facts in tree.listing(folder):
        name = os.path.join(shown, os.path.basename(source))
        if why := _unnamable(name):
            say(f"{tree.root}/{name!a} is left out: {why}")
            continue
        if stat.S_ISLNK(facts.st_mode):
            if why := _left_out(tree, source):
                say(f"{tree.root}/{name} is left out: {why}")
                continue
            source = tree.real(source)
            if source == "." or (end := tree.facts(source)) is None:
                continue
            facts = end
        if stat.S_ISREG(facts.st_mode):
            yield _outgoing(tree, source, name, facts)
        elif stat.S_ISDIR(facts.st_mode) and source not in (*above, folder):
            yield from _files_of(tree, source, name, (*above, folder), say)


def _unnamable(name: str) -> str:
    """Why no store can have a file of this name; empty: stores can."""
    try:
        parts_of(name)
        name.encode()
    except ForeignName as error:
        return str(error)
    except UnicodeEncodeError:
        return "its name is no UTF-8"
    return ""


def _left_out(tree: Tree, link: str) -> str:
    """Says why a link isn't followed; empty: it is."""
    target = tree.target(link)
    try:
        end = tree.real(link)
        if end == "." or tree.target(end) is None:
            return _unnamable(end) if end != "." else ""
    except ForeignName:
        return f"it is a link to {target}, which is outside of {tree.root}"
    return f"it is a link to {target}, which leads to itself"


def pack(directory: str, path: str, place: str) -> None:
    """All of ``directory``, a real path, as a ``.tar.gz`` on the disk of ``place``, as SageMaker packs a model. Links
    that lead out of it are left out, as are files that change all the time; other links become relative.
    """
    tree = Tree(directory)
    size = sum(file.size for file in files_below(directory))
    if size > (room := free(place)) * 4:
        raise StoreError(f"{directory} has {size:,} bytes, and {place} has room for {room:,}")
    with Archive(path) as archive:
        for name, facts in tree.walk():
            target = ""
            if stat.S_ISLNK(facts.st_mode):
                if why := _left_out(tree, name):
                    note(f"{tree.root}/{name} is left out: {why}")
                    continue
                target = tree.target(name) or ""
                if os.path.isabs(target):
                    target = os.path.relpath(tree.real(name), os.path.dirname(name) or ".")
            elif not (stat.S_ISREG(facts.st_mode) or stat.S_ISDIR(facts.st_mode)):
                continue
            try:
                tree.pack(name, archive, name, target)
            except (Changed, FileNotFoundError) as error:
                note(f"{tree.root}/{name} is left out: {error.strerror}")


@contextlib.contextmanager
def scratch(place: str) -> Iterator[str]:
    """The path of a new file in ``place`` that is gone with this process, however it ends."""
    with tempfile.TemporaryFile(dir=place) as file:
        path = f"/proc/self/fd/{file.fileno()}"
        if os.path.exists(path):  # Linux: it has no name there
            yield path
            return
    with tempfile.NamedTemporaryFile(dir=place) as named:
        yield named.name


# -- how fast a place is --


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
    with store.explained(item.name), contextlib.closing(store.open(item.name)) as file:
        while size < PROBE and time.monotonic() - began <= PROBE_SECONDS and (piece := file.read(PROBE_STEP)):
            size += len(piece)
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


# -- checkpoints --


def newest(request: dict[str, Any]) -> dict[str, Any]:
    """The newest whole checkpoint at ``uri``; nothing where there is none."""
    shelf = Shelf(request["uri"], request["access"])
    emit(opened=True)
    found = patiently(shelf.newest, TERMS)
    if found is None:
        return {}
    counts = {"files": len(found.files), "bytes": found.size}
    return {"number": found.number, "job": found.job, "hosts": found.hosts, "names": list(found.names), **counts}


ACTIONS: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
    "fetch": fetch,
    "measure": measure,
    "send": send,
    "probe": probe,
    "restore": lambda request: restore(request, TERMS),
    "newest": newest,
}
