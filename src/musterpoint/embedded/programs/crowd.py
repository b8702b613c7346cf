"""Many transfers at a time, tried again where that may help; and what a program of ours says of them.

Runs in a Python that may not have musterpoint.
"""

from __future__ import annotations

import collections
import json
import math
import queue
import sys
import threading
import time
from typing import Any, Callable, Iterable, NamedTuple, TypeVar

from musterpoint.embedded.programs.stores import StoreError

WINDOW = 64
"""Files that are begun at a time, at most: fewer where the store refuses some."""
REPEATS = 5
"""How often one file is brought, or sent, again that came in another size, or changed meanwhile."""
FAILURES = 8
"""Passing failures in a row, without a file that got through, after which it is given up. Those of transfers that ran
at the same time are one.
"""
LONGEST_PAUSE = 30.0
UNREACHED = 30.0
"""Seconds from the beginning after which a store to fetch from is given up that was never reached: a network comes up a
little later than its host, or not at all.
"""
EVERY = 1.0
"""Seconds between two reports of progress."""
NOTES = 10.0
"""Seconds between two sentences about failures that may pass."""
CANCEL_SECONDS = 2.0

Found = TypeVar("Found")


class Progress(NamedTuple):
    """How far it is: bytes and files of all that are to be transferred."""

    at: int
    size: int
    files: int
    of: int
    seconds: float


_emitting = threading.Lock()


def emit(**facts: Any) -> None:
    """Says facts to who started this program: one line of JSON on stdout, whole whichever threads write."""
    with _emitting:
        sys.stdout.write(json.dumps(facts) + "\n")
        sys.stdout.flush()


Tell = Callable[[Progress], None]
Note = Callable[[str], None]
"""Gets a sentence about something that is tried again."""


class Job(NamedTuple):
    """One file on its way: its number, name and size, and what begins it."""

    number: int
    name: str
    size: int


class Tries:
    """When something that failed is tried again. ``count``: of failures, since the beginning. ``unreached``: seconds
    after which a store that never answered is given up; what is sent would be lost then, and has no such limit.
    """

    def __init__(self, note: Note, unreached: float = UNREACHED) -> None:
        self._note, self._unreached = note, unreached
        self._in_a_row, self._noted_at = 0, -NOTES
        self._began, self._reached = time.monotonic(), False
        self.count, self.resume_at = 0, 0.0

    def succeeded(self) -> None:
        self._in_a_row, self._reached = 0, True

    def failed(self, error: StoreError) -> None:
        """Raises where no further try may help."""
        if not error.passing:
            raise error
        now = time.monotonic()
        self._reached = self._reached or not error.unreachable
        if not self._reached and now - self._began >= self._unreached:
            raise StoreError(f"nothing answered within {now - self._began:.0f} s: {error}", passing=True)
        self.count, self._in_a_row = self.count + 1, self._in_a_row + 1
        if self._in_a_row >= FAILURES:
            raise StoreError(f"{self._in_a_row} tries failed in a row, the last with: {error}", passing=True)
        if now - self._noted_at >= NOTES:
            self._noted_at = now
            counted = self._reached or self._unreached == math.inf
            how_often = f"({self._in_a_row} of {FAILURES - 1} times)" if counted else f"for {self._unreached:.0f} s"
            self._note(f"{error}; it is tried again {how_often}")
        self.resume_at = now + min(0.25 * 2.0**self._in_a_row, LONGEST_PAUSE)


def patiently(call: Callable[[], Found], note: Note) -> Found:
    """What ``call`` gives, which is called again where its failure may pass.

    Raises:
        StoreError: it doesn't pass.
    """
    tries = Tries(note)
    while True:
        try:
            return call()
        except StoreError as error:
            tries.failed(error)
        time.sleep(max(0.0, tries.resume_at - time.monotonic()))


class Crowd:
    """Many transfers, :data:`WINDOW` at a time. A failure that may pass is tried again, after a pause of all, and with
    half as many at a time: a store that throttles refuses many at once.

    ``begin`` starts a job, given the two calls that take its bytes and its end; ``ended`` is told of its success and
    returns why it doesn't count (empty: it does): the job is begun again then, :data:`REPEATS` times at most.
    ``unreached``: as for :class:`Tries`.
    """

    def __init__(self, tell: Tell, note: Note, unreached: float = UNREACHED) -> None:
        self._tell, self._tries = tell, Tries(note, unreached)
        self._events: queue.Queue[tuple[Job, Any]] = queue.Queue()
        self._bytes: collections.Counter[int] = collections.Counter()

    def run(
        self,
        jobs: Iterable[Job],
        begin: Callable[[Job, Callable[[int], None], Callable[[Any], None]], None],
        ended: Callable[[Job], str],
        cancel: Callable[[], None],
        until: float | None = None,
    ) -> None:
        """Ends when all jobs have, or raises a StoreError; ``until`` (monotonic): a time to give up at."""
        waiting = collections.deque(jobs)
        total, count = sum(job.size for job in waiting), len(waiting)
        began = reported = time.monotonic()
        running, done_files, done_bytes, window, rounds = 0, 0, 0, WINDOW, dict[int, int]()
        repeats: collections.Counter[int] = collections.Counter()
        try:
            while waiting or running:
                now = time.monotonic()
                while waiting and running < window and now >= self._tries.resume_at:
                    job = waiting.popleft()
                    rounds[job.number] = self._tries.count
                    self._bytes[job.number] = 0
                    running += 1
                    try:
                        begin(job, self._counter(job.number), self._ender(job))
                    except StoreError as error:
                        self._events.put((job, error))
                ends = [now + EVERY, *([until] if until is not None else ())]
                if waiting and self._tries.resume_at > now:
                    ends.append(self._tries.resume_at)
                over, why = self._next(max(0.0, min(ends) - now))
                if over is not None:
                    running -= 1
                    self._bytes.pop(over.number, None)
                    again = ended(over) if why is None else ""
                    if why is None and not again:
                        done_files, done_bytes, window = done_files + 1, done_bytes + over.size, min(WINDOW, window + 1)
                        self._tries.succeeded()
                    else:
                        waiting.append(over)
                    if again:
                        repeats[over.number] += 1
                        if repeats[over.number] > REPEATS:
                            raise StoreError(f"{again}, {REPEATS} times in a row")
                    if why is not None and rounds[over.number] == self._tries.count:
                        self._tries.failed(why)
                        window = max(1, window // 2)
                    elif why is not None and not why.passing:
                        raise why
                now = time.monotonic()
                if until is not None and now >= until:
                    raise StoreError("there was no more time", passing=True)
                if now - reported >= EVERY:
                    reported = now
                    at = done_bytes + sum(self._bytes.values())
                    self._tell(Progress(min(at, total), total, done_files, count, now - began))
        except BaseException:
            cancel()
            self._wait(running)
            raise

    def _next(self, seconds: float) -> tuple[Job | None, Any]:
        """The next transfer that has ended, and its error; nothing where none does for so long."""
        try:
            return self._events.get(timeout=seconds)
        except queue.Empty:
            return None, None

    def _wait(self, running: int) -> None:
        """Waits a little for cancelled transfers; a request that hangs doesn't hold us."""
        until = time.monotonic() + CANCEL_SECONDS
        while running and (left := until - time.monotonic()) > 0:
            try:
                self._events.get(timeout=left)
            except queue.Empty:
                return
            running -= 1

    def _counter(self, number: int) -> Callable[[int], None]:
        def count(amount: int) -> None:
            self._bytes[number] += amount

        return count

    def _ender(self, job: Job) -> Callable[[Any], None]:
        return lambda error: self._events.put((job, error))
