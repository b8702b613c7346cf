"""What the page hears of jobs as it happens, as server-sent events: statuses, lines of logs, values of metrics."""

from __future__ import annotations

import json
import os
import queue
from typing import Any, Iterator, Mapping

from musterpoint.serve.context import Context
from musterpoint.serve.state import Record
from musterpoint.serve.training_request import hosts, is_spot
from musterpoint.serve.transitions import KIND, OVER
from musterpoint.tools.viewer.curves import FILE, read_curves, to_json
from musterpoint.tools.viewer.history import TIMELINE

MOST_JOBS = 200
_FIRST, _PIECE = 1 << 17, 1 << 18
"""Bytes of a log that are sent to who begins to look, and at once later."""
_BEAT = 15.0
"""Seconds after which a line that says nothing finds out whether anyone listens."""


def overview(context: Context) -> list[dict[str, Any]]:
    """The newest jobs, newest first."""
    return [_row(record) for record in context.state.select(KIND, order=f"number DESC LIMIT {MOST_JOBS}")]


def newest_run(context: Context, job: str) -> str:
    """The directory of the job's newest run, or of the job where there is none."""
    runs = _runs(context, job)
    return runs[-1] if runs else context.settings.job_directory(os.path.basename(job))


def _runs(context: Context, job: str) -> list[str]:
    folder = context.settings.job_directory(os.path.basename(job))
    try:
        numbers = sorted(int(name[4:]) for name in os.listdir(folder) if name.startswith("run-") and name[4:].isdigit())
    except FileNotFoundError:
        return []
    return [os.path.join(folder, f"run-{number}") for number in numbers]


def _row(record: Record) -> dict[str, Any]:
    return {
        "name": record.name,
        "status": record.status,
        "secondary": record.facts.get("SecondaryStatus", ""),
        "created": record.created,
        "ended": record.ended,
        "hosts": len(hosts(record.request)),
    }


class News:
    """The events of one listener; ``job``: the one whose details it wants, or empty."""

    def __init__(self, context: Context, job: str) -> None:
        self._context, self._job = context, job
        self._changed: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._forget = context.notices.listen(self._changed.put)
        self._sent: dict[str, int] = {}
        self._measured: dict[str, int] = {}

    def __iter__(self) -> Iterator[bytes]:
        try:
            yield _event("jobs", overview(self._context))
            yield from self._details()
            while True:
                try:
                    name = self._changed.get(timeout=_BEAT)
                except queue.Empty:
                    yield b": still here\n\n"
                    continue
                record = self._context.state.find(KIND, name)
                yield _event("jobs", [_row(record)] if record else [{"name": name, "status": ""}])
                if name == self._job:
                    yield from self._details()
        finally:
            self.close()

    def close(self) -> None:
        """Of WSGI: nobody listens any more."""
        forget, self._forget = self._forget, lambda: None
        forget()
        self._context.state.close()

    def _details(self) -> Iterator[bytes]:
        record = self._context.state.find(KIND, self._job) if self._job else None
        if record is None:
            return
        for run in _runs(self._context, self._job):
            for host in hosts(record.request):
                yield from self._lines(os.path.join(run, "hosts", host, "log"), host)
        run = newest_run(self._context, self._job)
        yield from self._curves(record, run)
        yield _event("job", {**_row(record), **_shown(record), "report": os.path.exists(os.path.join(run, TIMELINE))})

    def _lines(self, path: str, host: str) -> Iterator[bytes]:
        try:
            with open(path, "rb") as file:
                size = os.fstat(file.fileno()).st_size
                at = self._sent.get(path, max(0, size - _FIRST))
                file.seek(at)
                while data := file.read(_PIECE):
                    at += len(data)
                    yield _event("log", {"host": host, "text": data.decode("utf-8", "replace")})
                self._sent[path] = at
        except FileNotFoundError:
            return

    def _curves(self, record: Record, run: str) -> Iterator[bytes]:
        try:
            size = os.path.getsize(os.path.join(run, FILE))
        except OSError:
            return
        if self._measured.get(run) != size:
            self._measured[run] = size
            yield _event("curves", to_json(read_curves(run, record.created)))


def _shown(record: Record) -> Mapping[str, Any]:
    return {
        "reason": record.facts.get("FailureReason", ""),
        "transitions": record.facts.get("SecondaryStatusTransitions", []),
        "model": (record.facts.get("ModelArtifacts") or {}).get("S3ModelArtifacts", ""),
        "image": record.request.get("AlgorithmSpecification", {}).get("TrainingImage", ""),
        "type": record.request.get("ResourceConfig", {}).get("InstanceType", ""),
        "stoppable": record.status not in (*OVER, "Stopping"),
        "spot": is_spot(record.request),
    }


def _event(kind: str, value: Any) -> bytes:
    return f"event: {kind}\ndata: {json.dumps(value)}\n\n".encode()
