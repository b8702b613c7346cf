"""Runs the jobs of the state, as many at once as the server may: starts their processes and sees them end.

A job that a killed server left is found again: one that nobody has begun is begun, one that runs is watched, and one
whose process died with it has failed. None is begun twice: see :meth:`JobProcess.claim`.
"""

from __future__ import annotations

import os
import shutil
import threading
from typing import Any, Mapping

from musterpoint.serve import orders
from musterpoint.serve.fork_server import ForkServer, wait_for_end
from musterpoint.serve.job_keys import RUN, key_of, split_key
from musterpoint.serve.job_process import INTERNAL_ERROR
from musterpoint.serve.job_run import END, STOP
from musterpoint.serve.notices import Notices
from musterpoint.serve.settings import Settings
from musterpoint.serve.state import Record, State
from musterpoint.serve.transitions import OVER, entered


class Runner:
    """The running jobs of one server, by their keys (see :mod:`.job_keys`)."""

    def __init__(self, settings: Settings, state: State, notices: Notices) -> None:
        self._settings, self._state, self._notices = settings, state, notices
        self._running: set[str] = set()
        self._changed = threading.Condition()
        self._closing = False
        self._forks = ForkServer(settings)
        self._thread = threading.Thread(target=self._start_jobs, name="runner", daemon=True)

    def start(self) -> None:
        """Finds what a former server left, and begins."""
        for record in (found for kind in RUN for found in self._state.select(kind, "ended IS NULL")):
            if record.facts.get("_claimed"):
                key = key_of(record.kind, record.name)
                self.order(key, {"order": "back", "settings": self._settings.to_json()})
                if record.status == "Stopping":
                    self.order(key, {"order": STOP})
                self._watch(key)
        self._thread.start()

    def submit(self, key: str) -> None:
        """A job has been added to the state, whose directory is there."""
        with self._changed:
            self._changed.notify_all()

    def first_status(self) -> tuple[str, str]:
        """The secondary status of a job that is added now, and what is said with it."""
        most = self._settings.max_jobs
        if len(self._running) < most:
            return "Starting", ""
        return "Pending", f"Waiting for its turn: this server runs {most} job{'s' if most > 1 else ''} at once"

    def prepare(self, key: str) -> None:
        """Makes the directory of a new job."""
        folder = self._settings.job_directory(key)
        os.makedirs(folder, exist_ok=True)
        orders.prepare(folder)

    def order(self, key: str, order: Mapping[str, Any]) -> bool:
        """Tells a job; False: none of its processes runs."""
        try:
            orders.send(self._settings.job_directory(key), order)
        except orders.NotRunning:
            return False
        return True

    def forget(self, key: str) -> None:
        """Removes the files of a job that is over."""
        shutil.rmtree(self._settings.job_directory(key), ignore_errors=True)

    def close(self) -> None:
        """Ends all jobs at once, and returns when they have ended."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        self._thread.join()
        with self._changed:
            for key in self._running:
                self.order(key, {"order": END})
            self._changed.wait_for(lambda: not self._running)
        self._forks.close()

    def _start_jobs(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._closing or self._next() is not None)
                key = None if self._closing else self._next()
                if key is None:
                    self._state.close()
                    return
                self._running.add(key)
            self.prepare(key)
            self._forks.start(key)
            self._watch(key)

    def _next(self) -> str | None:
        """The oldest job that waits, if there is room for one more."""
        if len(self._running) >= self._settings.max_jobs:
            return None
        unclaimed = "ended IS NULL AND json_extract(facts, '$._claimed') IS NULL"
        waiting = [each for kind in RUN for each in self._state.select(kind, unclaimed, order="number LIMIT 100")]
        keys = [key_of(record.kind, record.name) for record in sorted(waiting, key=lambda record: record.number)]
        return next((key for key in keys if key not in self._running), None)

    def _watch(self, key: str) -> None:
        self._running.add(key)
        threading.Thread(target=self._see_end, args=(key,), name=f"job {key}", daemon=True).start()

    def _see_end(self, key: str) -> None:
        wait_for_end(self._settings.job_directory(key))
        self._state.change(*split_key(key), _died)
        self._state.close()
        self._notices.send(key)
        with self._changed:
            self._running.discard(key)
            self._changed.notify_all()


def _died(record: Record) -> Record | None:
    """The process of the job has ended; where it didn't get to say how the job ended, it was killed."""
    if record.status in OVER or not record.facts.get("_claimed"):
        return None
    return entered(record, "Failed", FailureReason=f"{INTERNAL_ERROR} (the process that ran the job was killed)")
