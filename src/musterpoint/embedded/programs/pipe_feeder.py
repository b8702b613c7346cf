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
from musterpoint.embedded.programs.mover import end_with_stdin, listed, note
from musterpoint.embedded.programs.pipes import Part, Pipe, Piped
from musterpoint.embedded.programs.stores import Item, Lacks, Store, StoreError


def main(request: dict[str, Any]) -> int:
    """``request``: what the mover's ``fetch`` has of a channel; ``path``, to which ``_EPOCH`` is added; ``records``:
    each file is a RecordIO record.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=end_with_stdin, daemon=True).start()
    try:
        store, items = patiently(lambda: listed(request), note)
        by_name = {item.name: item for item in items}
        piped = Piped([Part(uri=item.name) for item in items], request["records"], gzip=False, seed=None)
        Pipe(request["path"], piped, lambda name: content(store, by_name[name]), lambda error: failed(store, error))
        emit(done={"files": len(items), "bytes": sum(item.size for item in items)})
    except Lacks as error:
        emit(lacks=str(error))
        os._exit(1)
    except StoreError as error:
        emit(error=str(error), missing=error.missing)
        os._exit(1)
    except OSError as error:
        emit(error=f"{error.filename}: {error.strerror}" if error.filename else str(error))
        os._exit(1)
    while True:
        signal.pause()


def failed(store: Store, error: Exception) -> None:
    emit(error=str(store.explain(error)))


def content(store: Store, item: Item) -> Iterator[bytes]:
    """A file, in pieces; after a failure that may pass it goes on where it was, with the same version."""
    tries, at = Tries(note), 0
    while True:
        try:
            if not at:  # it may have been replaced since it was listed
                item = store.item(item.name) or item
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
