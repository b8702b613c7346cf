"""Runs the jobs of the state, each in a process below the server.

The server and a job's process talk over a pair of sockets, a line of JSON each: the job comes first, orders after it,
and back come its statuses and what its hosts print. When the server ends, however it ends, the sockets do, and so does
the process with all that is below it.
"""

from __future__ import annotations

import json
import math
import os
import shutil
import socket
import struct
import subprocess
import sys
import threading
import time
import traceback
import urllib.parse
from typing import Any, Callable, Mapping, NamedTuple, Sequence

from musterpoint.base.metrics import Point
from musterpoint.local.job_status import OVER, is_over
from musterpoint.local.tree import write_text
from musterpoint.serve.credentials import Credentials, Pair
from musterpoint.serve.job_process import url_of
from musterpoint.serve.moto_services import Line, Telemetry
from musterpoint.serve.settings import Settings
from musterpoint.serve.state import END, INTERNAL_ERROR, STOP, Record, State, entered
from musterpoint.serve.training_request import archives

LONGEST_ORDER = 10
"""Seconds that a job's process gets to take an order."""
LONGEST_END = 4.0
"""Seconds that jobs get to end with the server; then they are killed."""
LONGEST_URL = 10 * 365 * 86400
"""Seconds that a job's URLs of S3 last; its keys end with it."""
OF_AWS = ("AWS_", "S3_ENDPOINT_URL")
"""Begin the names of variables that lead to AWS itself. No job gets them."""
_RUN = "import sys; sys.path[:] = filter(None, sys.path); from musterpoint.serve.job_main import main; main()"
"""Not ``-m``: a file of the user's folder would come before the standard library's."""


class Running(NamedTuple):
    """A job's process, the server's end of its socket, and its pair of keys."""

    name: str
    process: subprocess.Popen[bytes]
    link: socket.socket
    pair: Pair


class Jobs:
    """The running jobs of one server, by their names."""

    def __init__(
        self,
        settings: Settings,
        state: State,
        telemetry: Telemetry,
        credentials: Credentials,
        say: Callable[[str], None],
    ) -> None:
        self._settings, self._state, self._telemetry = settings, state, telemetry
        self._credentials, self._say = credentials, say
        self._running: dict[str, Running] = {}
        self._changed = threading.Condition()
        self._closing = False
        self._spare: tuple[subprocess.Popen[bytes], socket.socket] | None = None
        # what it starts gets SIGKILL when this thread ends: it lives as long as the server
        self._thread = threading.Thread(target=self._start_all, name="jobs", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def add(
        self,
        name: str,
        request: Mapping[str, Any],
        tags: Mapping[str, str],
        notes: Sequence[str] = (),
        longest_wait: float = math.inf,
    ) -> Record:
        """Keeps a new job with its first status; it is run from now on. Raises AlreadyThere.

        ``notes``: sentences with which the job's log begins. ``longest_wait``: seconds after which it isn't started
        any more.
        """
        arn, most = self._settings.arn(name), self._settings.max_jobs
        status, message = "Starting", ""
        if len(self._running) >= most:
            count = f"{most} job{'s' if most > 1 else ''}"
            status, message = "Pending", f"Waiting for its turn: this server runs {count} at once"
        job = entered(Record(name, arn, "InProgress", 0.0, 0.0, None, request, {}), status, message)
        facts = {**job.facts, "_notes": tuple(notes), "_start_until": time.time() + longest_wait}
        record = self._state.add(name, arn, job.status, request, facts, tags)
        with self._changed:
            self._changed.notify_all()
        return record

    def stop(self, job: Record) -> None:
        """Has a job stopped, whether it runs or still waits."""

        def change(record: Record) -> Record | None:
            if record.status in (*OVER, "Stopping"):
                return None
            stopping = entered(record, "Stopping")
            return stopping if record.facts.get("_started") else entered(stopping, "Stopped")

        self._state.change(job.name, change)
        self.order(job.name, {"order": STOP})

    def order(self, name: str, order: Mapping[str, Any]) -> bool:
        """Tells a job; False: it doesn't run."""
        with self._changed:
            running = self._running.get(name)
            return running is not None and _tell(running, order)

    def forget(self, name: str) -> None:
        """Removes the files of a job that is over."""
        self._telemetry.forget(name)
        shutil.rmtree(self._settings.job_directory(name), ignore_errors=True)

    def end_all(self) -> None:
        """Ends all jobs at once, and returns when nothing of them is left."""
        with self._changed:
            for running in self._running.values():
                _tell(running, {"order": END})
            self._changed.wait_for(lambda: not self._running, LONGEST_END)
            for running in self._running.values():
                running.process.kill()
            self._changed.wait_for(lambda: not self._running, LONGEST_END)

    def close(self) -> None:
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        self.end_all()

    # -- the thread that starts them --

    def _start_all(self) -> None:
        self._spare = _process()
        while True:
            with self._changed:
                while True:
                    waiting = self._state.select(self._waits)
                    left = self._give_up(waiting)
                    if (record := self._next(waiting)) is not None:
                        break
                    self._changed.wait(left)
            try:
                started = self._state.change(record.name, _started)
                if started is not None and started.status not in OVER:
                    self._begin(started)
                    self._spare = _process()
            except Exception as error:
                self._say(traceback.format_exc())
                self._fail(record, f"{INTERNAL_ERROR} ({type(error).__name__}: {error})")

    def _next(self, waiting: Sequence[Record]) -> Record | None:
        """The oldest of ``waiting``; None: there is no room, or the server ends."""
        if self._closing or len(self._running) >= self._settings.max_jobs:
            return None
        return min(waiting, key=lambda record: record.number, default=None)

    def _give_up(self, waiting: Sequence[Record]) -> float | None:
        """Ends jobs that have waited too long; returns the seconds until the next has."""
        left = [(each, each.facts["_start_until"] - time.time()) for each in waiting]
        for record, seconds in left:
            if seconds <= 0:
                self._change(record, lambda now: entered(now, "MaxWaitTimeExceeded"))
        return min((min(seconds, threading.TIMEOUT_MAX) for _, seconds in left if seconds > 0), default=None)

    def _waits(self, record: Record) -> bool:
        """Tells whether it may be started. A deleted job of the same name may still be ending."""
        is_new = record.ended is None and "_started" not in record.facts
        return is_new and record.name not in self._running

    def _begin(self, record: Record) -> None:
        folder = self._settings.job_directory(record.name)
        put_aside(folder)
        os.makedirs(folder)
        notes = "".join(f"[muster serve] {note}\n" for note in record.facts["_notes"])
        write_text(self._settings.job_log(record.name), notes, private=True)
        if self._spare is None or self._spare[0].poll() is not None:
            self._spare = _process()
        (process, link), self._spare = self._spare, None
        pair = self._credentials.of_job()
        running = Running(record.name, process, link, pair)
        settings = self._settings._replace(access_key=pair.access_key, secret_key=pair.secret_key)
        uploads = {uri: self._presigned(uri, pair) for uri in archives(record.request)}
        with self._changed:  # a stop is in the record by now, or finds the job running
            self._running[record.name] = running
            now = self._state.find(record.name) or record
            job = {name: getattr(now, name) for name in ("name", "arn", "created", "request", "status")}
            if not _tell(running, {"settings": settings._asdict(), "job": {**job, "uploads": uploads}}):
                process.kill()
        threading.Thread(target=self._hear, args=(running, record), name=f"job {record.name}", daemon=True).start()

    def _presigned(self, uri: str, pair: Pair) -> str:
        """The URL by which a job may put an object, as long as it has its keys."""
        key = urllib.parse.quote(uri.removeprefix("s3://"))
        return pair.presigned(f"{url_of(self._settings)}/{key}", self._settings.region, LONGEST_URL)

    # -- a thread for each --

    def _hear(self, running: Running, record: Record) -> None:
        """Takes the words of the job's process until it has ended. The job is over then, whatever happened."""
        try:
            with running.link.makefile(encoding="utf-8") as lines:
                for line in lines:
                    try:
                        self._take(running, record, json.loads(line))
                    except Exception:
                        self._say(f"{record.name}: {traceback.format_exc()}")
        except OSError as error:
            self._say(f"{record.name}: {error}")
        finally:
            running.link.close()
            code = running.process.wait()
            self._credentials.revoke(running.pair)
            log = self._settings.job_log(running.name)
            self._fail(record, f"{INTERNAL_ERROR} (the job's process ended with code {code}: {log} says more)")
            with self._changed:
                if self._running.get(running.name) is running:
                    del self._running[running.name]
                self._changed.notify_all()

    def _fail(self, record: Record, reason: str) -> None:
        """Ends a job that isn't over."""
        self._change(record, lambda now: entered(now, "Failed", FailureReason=reason))

    def _change(self, record: Record, change: Callable[[Record], Record | None]) -> None:
        """Changes the job of ``record``, and never a later one of its name."""
        self._state.change(record.name, lambda now: change(now) if now.number == record.number else None)

    def _take(self, running: Running, record: Record, said: Mapping[str, Any]) -> None:
        if "lines" in said:
            self._telemetry.lines(running.name, said["run"], [Line(*each) for each in said["lines"]])
        elif "points" in said:
            self._telemetry.points(record.name, [Point(*each) for each in said["points"]])
        elif "status" in said:
            status, message, facts = said["status"], said["message"], said["facts"]
            if is_over(status):  # nobody finds a job over whose keys still sign
                self._credentials.revoke(running.pair)
            self._change(record, lambda now: _entered(now, status, message, facts))
        else:
            self._change(record, lambda now: now.with_facts(**said["facts"]))


def _process() -> tuple[subprocess.Popen[bytes], socket.socket]:
    """A process that is loaded and waits for its job, and our end of its socket."""
    ours, theirs = socket.socketpair()
    # a process that reads no orders holds nobody
    ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", LONGEST_ORDER, 0))
    with theirs:
        process = subprocess.Popen(
            [sys.executable, "-c", _RUN, str(theirs.fileno()), str(os.getpid())],
            stdin=subprocess.DEVNULL,
            env={name: value for name, value in os.environ.items() if not name.startswith(OF_AWS)},
            pass_fds=(theirs.fileno(),),
            start_new_session=True,
        )
    return process, ours


def _started(record: Record) -> Record | None:
    return None if record.status in OVER else record.with_facts(_started=True)


def _entered(record: Record, status: str, message: str, facts: Mapping[str, Any]) -> Record | None:
    if record.facts["SecondaryStatus"] == status and not facts:
        return None
    return entered(record, status, message, **facts)


def _tell(running: Running, said: Mapping[str, Any]) -> bool:
    try:
        running.link.sendall((json.dumps(said) + "\n").encode())
    except OSError:
        return False  # it has ended
    return True


def put_aside(folder: str) -> None:
    """Renames the folder of an earlier job of the same name: FOLDER.1 and so on."""
    if os.path.exists(folder):
        number = 1
        while os.path.exists(f"{folder}.{number}"):
            number += 1
        os.rename(folder, f"{folder}.{number}")
