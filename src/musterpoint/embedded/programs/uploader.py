"""The sidecar that uploads: a program of its own, in a Python that has boto3; musterpoint isn't installed there.

A line ``finish SECONDS`` on stdin begins its end; it ends at once when stdin does. Facts go to stdout, one JSON object
a line; ``lacks``, the only one, names what this Python lacks: boto3, or watchdog where the directory is to be watched.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import queue
import signal
import sys
import threading
import time
from typing import Any, Callable

from musterpoint.embedded.programs.crowd import emit
from musterpoint.embedded.programs.file_leases import is_written
from musterpoint.embedded.programs.store_s3 import S3Store
from musterpoint.embedded.programs.stores import StoreError
from musterpoint.embedded.programs.upload_ledger import (
    Ledger,
    Version,
    is_private,
    leads_out,
    listing,
    read_record,
    version_of,
    write_record,
)

LARGE, EVERY = 32 * 1024**2, 10.0
"""Bytes of a file from which on its progress is reported, and how often (s)."""
QUIET = 5.0
"""Seconds without a change after which a file counts as written where the system doesn't tell."""
REWRITTEN = 10.0
"""Seconds to wait for a file that is closed and opened again and again, to upload it complete."""
STALLED, NEVER = 60.0, 20.0
"""Seconds without progress after which the final sync gives up; the second if nothing was uploaded or is running."""
HOPELESS, HOPED = 8, 5.0
"""Lasting failures in a row after which it gives up, unless there was progress in the last seconds."""
RESENT = 8
"""How often bytes of one file that are sent again count as progress."""
REFUSALS = 3
"""Lasting failures of one file after which the file is given up."""
NAMED = 5
"""How many of the files that didn't go up are named."""
CANCEL_SECONDS = 1.0
"""Seconds to wait for cancelled uploads to end."""
_REQUESTS = 8
"""At a time, beside the ranks."""


def main(request: dict[str, Any]) -> int:
    """``request``: directory, uri, access, record (a file), watch (bool)."""
    for name in ("SIGTERM", "SIGINT", "SIGHUP", "SIGIO"):  # the last: another process waits for a lease of ours
        signal.signal(getattr(signal, name), signal.SIG_IGN)
    for library in ("boto3", "watchdog") if request["watch"] else ("boto3",):
        if importlib.util.find_spec(library) is None:
            emit(lacks=library)
            return 1
    Uploader(request).run()
    return 0


class Uploader:
    """One thread decides; the others send it events through one queue."""

    def __init__(self, request: dict[str, Any]) -> None:
        self._directory, self._record = request["directory"], request["record"]
        self._events: queue.Queue[tuple[str, Any, Any]] = queue.Queue()
        self._ledger = Ledger(read_record(self._record))
        self._request = request
        self._bucket: _Bucket | None = None
        self._unsure: set[str] = set()
        self._since: dict[str, float] = {}
        self._problems: dict[str, int] = {}
        self._until: float | None = None
        self._best, self._headway_at, self._lasting = -1, 0.0, 0
        self._refusals: dict[str, int] = {}
        self._resent: dict[str, int] = {}
        self._sizes: dict[str, int] = {}
        self._files = self._bytes = 0
        self._reported_at: dict[str, float] = {}
        self._watching = False

    def run(self) -> None:
        threading.excepthook = self._thread_died
        threading.Thread(target=self._listen, daemon=True).start()
        if self._request["watch"]:
            self._watch()
        try:
            self._bucket = _Bucket(self._request["uri"], self._request["access"], self._done)
        except Exception as error:  # a wrong profile or endpoint
            self._problem("client", f"{type(error).__name__}: {' '.join(str(error).split())}")
        emit(watching=self._watching)
        if self._watching:
            self._look("")
        while not self._is_over():
            try:
                self._handle(*self._events.get(timeout=self._timeout()))
                while True:
                    self._handle(*self._events.get_nowait())
            except queue.Empty:
                pass
            self._begin_uploads()
            self._tell_progress()
        self._leave()

    # -- events from other threads --

    def _listen(self) -> None:
        for line in sys.stdin:
            self._events.put(("request", line.split(), None))
        os._exit(0)

    def _done(self, path: str, error: Any) -> None:
        self._events.put(("done", path, error))

    def _watch(self) -> None:
        events = importlib.import_module("watchdog.events")
        names = ("FileClosedEvent", "FileMovedEvent", "FileCreatedEvent", "DirMovedEvent", "DirCreatedEvent")
        wanted = [getattr(events, name) for name in names]
        put = self._events.put

        class Handler(events.FileSystemEventHandler):  # type: ignore[name-defined, misc]
            def dispatch(self, event: Any) -> None:
                put((type(event).__name__, os.fsdecode(event.src_path), os.fsdecode(event.dest_path or "")))

        observer = importlib.import_module("watchdog.observers").Observer()
        try:
            observer.schedule(Handler(), self._directory, recursive=True, event_filter=wanted)
            observer.start()
            self._watching = True
        except OSError as error:
            emit(blind=f"{self._directory} can't be watched: {error.strerror or error}")

    def _thread_died(self, args: Any) -> None:
        emit(blind=f"{self._directory} isn't watched any more: {args.exc_type.__name__}: {args.exc_value}")

    # -- the deciding thread --

    def _handle(self, what: str, path: Any, more: Any) -> None:
        if what == "request":
            self._finish(path)
        elif what == "done":
            self._ended(path, more)
        elif what == "FileClosedEvent":
            self._changed(path, True)
        elif what in ("DirCreatedEvent", "DirMovedEvent"):
            self._look(os.path.relpath(more or path, self._directory))
        else:  # moved, or made without being closed: a link
            if more:
                self._ledger.forget(os.path.relpath(path, self._directory))
            self._changed(more or path, False)

    def _finish(self, words: list[str]) -> None:
        if words[:1] != ["finish"]:
            return
        now = time.monotonic()
        if self._until is None:
            self._ledger.hurry()
            self._headway_at, self._lasting = now, 0
            for path, version in listing(self._directory).items():
                if not self._ledger.is_up(path, version):
                    self._ledger.changed(path, now, 0.0)
        self._until = now + float(words[1])

    def _changed(self, path: str, closed: bool) -> None:
        relative = os.path.relpath(path, self._directory)
        if relative.startswith("..") or is_private(relative):
            return
        if closed:
            self._unsure.discard(relative)
        else:
            self._unsure.add(relative)
        self._ledger.changed(relative, time.monotonic())

    def _look(self, below: str) -> None:
        """Adds the files of a new directory, which may be older than its watch."""
        for path, version in listing(self._directory, below).items():
            if not self._ledger.is_up(path, version):
                self._changed(os.path.join(self._directory, path), False)

    def _begin_uploads(self) -> None:
        now = time.monotonic()
        for path in self._ledger.ready(now):
            file = os.path.join(self._directory, path)
            version = version_of(file, self._directory)
            if version is None and leads_out(file, self._directory):
                self._problem(
                    "link", f"{path} is left out: it is a link to {os.readlink(file)}, outside of its directory"
                )
            if version is None or self._ledger.is_up(path, version):
                self._unsure.discard(path)
                continue
            if self._until is not None or not self._is_half_written(path, file, version, now):
                self._upload(path, file, version)

    def _is_half_written(self, path: str, file: str, version: Version, now: float) -> bool:
        """Whether it is being written (its close will be reported), or that isn't known yet."""
        written = is_written(file)
        if path not in self._unsure:
            if written and now - self._since.setdefault(path, now) < REWRITTEN:
                return True
            self._since.pop(path, None)
            return False
        if written is None and time.time() - version[1] / 1e9 < QUIET:
            self._ledger.changed(path, now, QUIET)
            return True
        self._unsure.discard(path)
        return bool(written)

    def _upload(self, path: str, file: str, version: Version) -> None:
        self._ledger.begin(path, version)
        try:
            path.encode()
        except UnicodeEncodeError:
            self._ledger.refused(path)
            self._problem("name", f"{os.fsencode(path)!r} is no UTF-8, and so no key")
            return
        if self._bucket is None:
            self._ledger.refused(path)
            return
        self._sizes[path], self._reported_at[path] = version[0], time.monotonic()
        self._bucket.upload(path, file)

    def _ended(self, path: str, error: Any) -> None:
        assert self._bucket is not None
        sent = self._bucket.sent.get(path, 0)
        self._bucket.forget(path)
        self._reported_at.pop(path, None)
        size, begun = self._sizes.pop(path, 0), self._ledger.uploading[path]
        version, now = version_of(os.path.join(self._directory, path), self._directory), time.monotonic()
        if error is None:
            self._ledger.went_up(path, version, now)
            self._resent.pop(path, None)
            self._files, self._bytes, self._lasting = self._files + 1, self._bytes + size, 0
            write_record(self._record, path, begun)
            return
        if sent and (resent := self._resent.get(path, 0)) < RESENT:
            self._resent[path] = resent + 1
            self._best -= sent
        kind, words, passing = "file" if error.local else error.kind, str(error), error.passing
        if error.local:
            if version is None:
                self._ledger.refused(path)  # deleted before it went up
                return
            if version == begun:
                self._ledger.refused(path)
                self._problem(kind, words)
                return
        if self._ledger.failed(path, version, now, not passing):
            self._lasting = 0 if passing else self._lasting + 1
            self._problem(kind, words)
            if self._until is not None and not passing:
                self._refusals[path] = self._refusals.get(path, 0) + 1
                if self._refusals[path] >= REFUSALS:
                    self._ledger.refused(path)

    def _problem(self, kind: str, words: str) -> None:
        self._problems[kind] = self._problems.get(kind, 0) + 1
        if self._problems[kind] == 1:
            emit(problem=words)

    def _timeout(self) -> float | None:
        now = time.monotonic()
        times = [self._ledger.next_at()]
        if self._until is not None:
            times += [self._until, now + 1.0]
        if any(size >= LARGE for size in self._sizes.values()):
            times.append(now + EVERY)
        known = [when for when in times if when is not None]
        return max(0.0, min(known) - now) if known else None

    def _tell_progress(self) -> None:
        now = time.monotonic()
        for path, size in self._sizes.items():
            if size >= LARGE and self._bucket is not None and now - self._reported_at[path] >= EVERY - 0.5:
                self._reported_at[path] = now
                emit(path=path, at=self._bucket.sent.get(path, 0), size=size)

    def _is_over(self) -> bool:
        if self._until is None:
            return False
        now = time.monotonic()
        done = self._files + self._bytes + (sum(self._bucket.sent.values()) if self._bucket else 0)
        if done > self._best:
            self._best, self._headway_at = done, now
        waits = self._bucket is not None and any(self._bucket.sent.values())  # perhaps only S3's answer is missing
        longest = STALLED if self._ledger.up or waits else NEVER
        still = now - self._headway_at
        hopeless = still >= longest or (self._lasting >= HOPELESS and still >= HOPED)
        return self._ledger.is_idle or now >= self._until or hopeless

    def _leave(self) -> None:
        """Cancels begun uploads, reports what is left and ends, without waiting for threads of the network."""
        if self._bucket is not None and self._ledger.uploading:
            self._bucket.cancel()
            until = time.monotonic() + CANCEL_SECONDS
            while self._ledger.uploading and (remaining := until - time.monotonic()) > 0:
                try:
                    what, path, error = self._events.get(timeout=remaining)
                except queue.Empty:
                    break
                if what == "done" and error is None:
                    self._ended(path, None)
                elif what == "done":
                    self._ledger.uploading.pop(path, None)
        found = listing(self._directory)
        left = sorted(path for path, version in found.items() if not self._ledger.is_up(path, version))
        named = [path.encode("utf-8", "replace").decode() for path in left[:NAMED]]
        emit(
            over={
                "files": self._files,
                "bytes": self._bytes,
                "left": len(left),
                "named": named,
                "problems": self._problems,
            }
        )
        os._exit(0)


class _Bucket:
    """Keys are those of ``uri``, and a relative path. ``access``: ``region`` and ``endpoint``, both may be empty.
    ``done`` gets path and error (None: uploaded), in another thread.

    ``sent``: bytes sent so far, by path of each running upload.
    """

    def __init__(self, uri: str, access: dict[str, Any], done: Callable[[str, StoreError | None], None]) -> None:
        self._store = S3Store(uri, access, _REQUESTS)
        self._done = done
        self.sent: dict[str, int] = {}

    def upload(self, path: str, file: str) -> None:
        """Begins to upload ``file``."""
        self.sent[path] = 0

        def on_bytes(amount: int) -> None:
            self.sent[path] = self.sent.get(path, 0) + amount

        def on_done(error: Any) -> None:
            self._done(path, error)

        self._store.send(file, path, on_bytes, on_done)

    def forget(self, path: str) -> None:
        """Drops the record of an upload that has ended."""
        self.sent.pop(path, None)

    def cancel(self) -> None:
        """Cancels the running uploads; parts that have begun still end."""
        self._store.cancel()
