"""The sidecar that uploads files as they are written: a program of its own, in a Python that has boto3.

A line ``finish SECONDS`` on stdin begins its end; it ends at once when stdin does. Facts go to stdout, one JSON object
a line; ``lacks``, the only one, names what this Python lacks.
"""

from __future__ import annotations

import collections
import os
import queue
import signal
import stat
import sys
import threading
import time
from typing import Any

from musterpoint.base.below import ForeignName, Tree
from musterpoint.embedded.programs.file_changes import DirectoryWatch, is_written
from musterpoint.embedded.programs.transfer import Outgoing, Pause, Record, emit, put_same, version_of
from musterpoint.embedded.programs.transfer_s3 import Again, Lacks, OnBytes, S3Store, Store, StoreError

SETTLE = 1.0
"""Seconds from a change to its upload, so that a file that is rewritten or renamed soon is uploaded once."""
LOOK_EVERY = 10.0
"""Seconds between two looks at a directory that can't be watched."""
QUIET = 5.0
"""Seconds without a change after which a file counts as written where the system doesn't tell."""
FILES, _REQUESTS = 4, 8
"""Uploads at the same time, and requests, beside the ranks."""
PRIVATE = ".tmp."
"""Directories with this prefix are never uploaded; sagemaker-training keeps its copies in one."""
LARGE, EVERY = 32 * 1024**2, 10.0
"""Bytes of a file from which on its progress is reported, and how often (s)."""
LONGEST_PAUSE, LONGEST_FINAL_PAUSE = 60.0, 5.0
"""Seconds that all uploads pause at most after failures in a row; the second at the end."""
STALLED, NEVER = 60.0, 20.0
"""Seconds without headway after which the end is given up; the second where nothing has gone up or is on its way."""
REFUSALS, HOPELESS = 3, 8
"""Failures at the end that no waiting mends: of one file, which is given up then, and in a row, which end it all."""
RESENT = 8
"""How often bytes of one file that are sent again count as headway."""
NAMED = 5
"""How many of the files that didn't go up are named."""
CANCEL_SECONDS = 1.0
"""Seconds to wait for cancelled uploads to end."""

Version = tuple[int, int, int]
"""As of :func:`version_of`."""


def main(request: dict[str, Any]) -> int:
    """``request``: directory (its real path), uri, access, record (a file)."""
    for name in ("SIGTERM", "SIGINT", "SIGHUP", "SIGIO"):  # the last: another process waits for a lease of ours
        signal.signal(getattr(signal, name), signal.SIG_IGN)
    try:
        store: Store | None = S3Store(request["uri"], request["access"], _REQUESTS)
    except Lacks as error:
        emit(lacks=str(error))
        return 1
    except StoreError as error:  # a wrong profile or endpoint
        emit(problem=str(error))
        store = None
    Uploader(request["directory"], Record(request["record"]), store).run()
    return 0


class Uploader:
    """One thread decides; the others send it events through one queue. ``record``: of each file that has
    gone up, its version. ``store`` None: it can't be reached at all.
    """

    def __init__(self, directory: str, record: Record, store: Store | None) -> None:
        self._directory, self._record, self._store = directory, record, store
        self._tree = Tree(directory)
        self._events: queue.Queue[tuple[str, Any, Any]] = queue.Queue()
        self._sending: dict[str, Version] = {}
        self._sent: dict[str, int] = {}
        self._given_up: dict[str, Version] = {}
        self._pause, self._lasting = Pause(), 0
        self._look_at = time.monotonic() + SETTLE
        self._tries, self._refusals = collections.Counter[str](), collections.Counter[str]()
        self._problems = collections.Counter[str]()
        self._files = self._bytes = 0
        self._until: float | None = None
        self._best, self._headway_at = -1, 0.0
        self._waiting: list[str] = []
        self._told_at: dict[str, float] = {}

    def run(self) -> None:
        threading.Thread(target=self._listen, daemon=True).start()
        watch = DirectoryWatch(self._directory, lambda: self._events.put(("changed", None, None)))
        emit(watching=watch.works)
        while not self._is_over():
            try:
                self.handle(*self._events.get(timeout=self._timeout()))
                while True:
                    self.handle(*self._events.get_nowait())
            except queue.Empty:
                pass
            self.turn(watch.works)
        self._leave()

    def _listen(self) -> None:
        for line in sys.stdin:
            words = line.split()
            if words[:1] == ["finish"]:
                self._events.put(("finish", float(words[1]), None))
        os._exit(0)

    # -- the deciding thread --

    def handle(self, what: str, about: Any, more: Any) -> None:
        now = time.monotonic()
        if what == "changed":
            self._look_at = min(self._look_at, now + SETTLE)
        elif what == "done":
            self._ended(about, more)
        elif what == "finish":
            if self._until is None:
                self._headway_at = now
                self._pause.succeeded()
                self._look_at, self._lasting = 0.0, 0
            self._until = now + about

    def turn(self, is_watched: bool = True) -> None:
        """Looks, if it is time, and begins uploads."""
        now = time.monotonic()
        if now >= self._look_at:
            self._look_at = now + (3600.0 if is_watched else LOOK_EVERY)
            self._look(now)
        while self._waiting and len(self._sending) < FILES and now >= self._pause.resume_at:
            self._begin(self._waiting.pop(0))
        self._tell_progress(now)

    def _is_another(self) -> bool:
        """Whether a link has taken the directory's place since the start: the program's files aren't there."""
        real = os.path.realpath(self._directory)
        if real != self._directory:
            self._problem("root", f"{self._directory} isn't uploaded any more: it has become a link to {real}")
        return real != self._directory

    def _listing(self) -> dict[str, Version]:
        """Every file below the directory, by its relative path. Links to files in it are files; links to directories
        aren't followed, as they may lead in circles.
        """
        found = dict[str, Version]()
        for path, facts in () if self._is_another() else self._tree.walk(private=PRIVATE):
            version = version_of(facts) if stat.S_ISREG(facts.st_mode) else None
            if stat.S_ISLNK(facts.st_mode) and not self._leads_out(path):
                version = self._version(path)
            if version is not None:
                found[path] = version
        return found

    def _leads_out(self, path: str) -> bool:
        try:
            self._tree.real(path)
        except ForeignName:
            if path not in self._given_up:
                self._given_up[path] = (0, 0, 0)
                self._problem("link", f"{path} is left out: it is a link to {self._tree.target(path)}")
            return True
        return False

    def _version(self, path: str) -> Version | None:
        """The version of a file, or of the one that a link leads to; None: there is none."""
        try:
            facts = self._tree.facts(self._tree.real(path))
        except (OSError, ForeignName):
            return None
        return version_of(facts) if facts is not None and stat.S_ISREG(facts.st_mode) else None

    def _look(self, now: float) -> None:
        waiting = []
        for path, version in sorted(self._listing().items(), key=lambda each: each[1][1]):  # the oldest change first
            if version in (self._record.known.get(path), self._given_up.get(path)) or path in self._sending:
                continue
            if self._until is None and (wait := self._half_written_for(path, version)):
                self._look_at = min(self._look_at, now + wait)
                continue
            waiting.append(path)
        self._waiting = waiting

    def _half_written_for(self, path: str, version: Version) -> float:
        """Seconds after which to look again whether the file is whole; 0: it is."""
        try:
            with self._tree.file(self._tree.real(path)) as file:
                written = is_written(file.fileno())
        except (OSError, ForeignName):
            return LOOK_EVERY
        if written is None:
            return max(0.0, QUIET - abs(time.time() - version[1] / 1e9))
        return LOOK_EVERY if written else 0.0  # its close is an event, too

    def _begin(self, path: str) -> None:
        version = self._version(path)
        if version is None:
            return
        try:
            path.encode()
        except UnicodeEncodeError:
            self._given_up[path] = version
            self._problem("name", f"{os.fsencode(path)!r} is no UTF-8, and so no key")
            return
        if self._store is None:
            self._given_up[path] = version
            return
        self._sending[path], self._sent[path], self._told_at[path] = version, 0, time.monotonic()

        def on_bytes(amount: int) -> None:
            self._sent[path] = self._sent.get(path, 0) + amount

        file = Outgoing(lambda: self._tree.file(self._tree.real(path)), path, version[0])
        self._send(self._store, file, path, on_bytes)

    def _send(self, store: Store, file: Outgoing, path: str, on_bytes: OnBytes) -> None:
        """Sends a file in a thread of its own."""

        def put() -> None:
            try:
                with store.explained(path):
                    put_same(store, file, on_bytes)
            except Again as error:
                self._events.put(("done", path, StoreError(str(error), passing=True)))
            except StoreError as error:
                self._events.put(("done", path, error))
            else:
                self._events.put(("done", path, None))

        threading.Thread(target=put, daemon=True).start()

    def _ended(self, path: str, error: Any) -> None:
        begun, sent = self._sending.pop(path), self._sent.pop(path, 0)
        now, version = time.monotonic(), self._version(path)
        if version != begun:  # it changed, or is gone
            self._look_at = min(self._look_at, now + (SETTLE if self._until is None else 0.0))
        if error is None:
            self._record.add(path, *begun)
            self._pause.succeeded()
            self._lasting = 0
            self._tries.pop(path, None)
            self._files, self._bytes = self._files + 1, self._bytes + begun[0]
            return
        self._tries[path] += 1
        if sent and self._tries[path] <= RESENT:
            self._best -= sent  # so that its bytes are headway again
        if version != begun:
            return
        self._problem("file" if error.local else error.kind, str(error))
        if error.local:
            self._given_up[path] = begun
            return
        self._lasting = 0 if error.passing else self._lasting + 1
        if self._until is None or error.passing:
            self._pause.failed(LONGEST_PAUSE if self._until is None else LONGEST_FINAL_PAUSE)
        else:
            self._refusals[path] += 1
            if self._refusals[path] >= REFUSALS:
                self._given_up[path] = begun
                return
        self._waiting.append(path)

    def _problem(self, kind: str, words: str) -> None:
        self._problems[kind] += 1
        if self._problems[kind] == 1:
            emit(problem=words)

    def _timeout(self) -> float:
        now = time.monotonic()
        times = [self._look_at]
        if self._waiting and len(self._sending) < FILES:
            times.append(self._pause.resume_at)
        if self._until is not None:
            times += [self._until, now + 1.0]
        if any(version[0] >= LARGE for version in self._sending.values()):
            times.append(now + EVERY)
        return max(0.0, min(times) - now)

    def _tell_progress(self, now: float) -> None:
        for path, version in self._sending.items():
            if version[0] >= LARGE and now - self._told_at[path] >= EVERY - 0.5:
                self._told_at[path] = now
                emit(path=path, at=self._sent.get(path, 0), size=version[0])

    # -- the end --

    def _is_over(self) -> bool:
        if self._until is None:
            return False
        now = time.monotonic()
        done = self._files + self._bytes + sum(self._sent.values())
        if done > self._best:
            self._best, self._headway_at = done, now
        is_going = self._record.known or any(self._sent.values())  # perhaps only S3's answer is missing
        still = now - self._headway_at
        if (
            now >= self._until
            or still >= (STALLED if is_going else NEVER)
            or (self._lasting >= HOPELESS and still > QUIET)
        ):
            return True
        return not (self._sending or self._waiting) and now < self._look_at

    def _leave(self) -> None:
        """Cancels begun uploads, reports what is left and ends, without waiting for threads of the network."""
        if self._store is not None and self._sending:
            self._store.cancel()
            until = time.monotonic() + CANCEL_SECONDS
            while self._sending and (left := until - time.monotonic()) > 0:
                try:
                    what, path, error = self._events.get(timeout=left)
                except queue.Empty:
                    break
                if what == "done" and error is None:
                    self._ended(path, None)
                elif what == "done":
                    self._sending.pop(path, None)
        missing = sorted(path for path, version in self._listing().items() if self._record.known.get(path) != version)
        named = [path.encode("utf-8", "replace").decode() for path in missing[:NAMED]]
        counts = {"files": self._files, "bytes": self._bytes, "left": len(missing), "named": named}
        emit(over={**counts, "problems": self._problems})
        os._exit(0)
