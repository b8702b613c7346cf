"""What the page hears of jobs as it happens, as server-sent events: statuses, lines of logs, values of metrics."""

from __future__ import annotations

import json
import os
import queue
from typing import Any, Iterator, Mapping, Sequence

from musterpoint.serve.context import Context
from musterpoint.serve.job_run import ORDER
from musterpoint.serve.shown_jobs import details, find, hosts, newest_run, row, rows, runs
from musterpoint.serve.state import Record
from musterpoint.tools.viewer.curves import FILE, read_curves, to_json
from musterpoint.tools.viewer.history import TIMELINE

_FIRST, _PIECE = 1 << 17, 1 << 18
"""Bytes of a log that are sent to who begins to look, and at once later."""
_BEAT = 15.0
"""Seconds after which a line that says nothing finds out whether anyone listens."""


class News:
    """The events of one listener; ``job``: the key of the one whose details it wants, or empty."""

    def __init__(self, context: Context, job: str) -> None:
        self._context, self._job = context, job
        self._changed: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._forget = context.notices.listen(self._changed.put)
        self._sent: dict[str, int] = {}
        self._measured: dict[str, int] = {}

    def __iter__(self) -> Iterator[bytes]:
        try:
            yield _event("jobs", rows(self._context))
            yield from self._details()
            while True:
                try:
                    key = self._changed.get(timeout=_BEAT)
                except queue.Empty:
                    yield b": still here\n\n"
                    continue
                record = find(self._context, key)
                yield _event("jobs", [row(record)] if record else [{"key": key, "status": ""}])
                if key == self._job or self._is_part(record):
                    yield from self._details()
        finally:
            self.close()

    def close(self) -> None:
        """Of WSGI: nobody listens any more."""
        forget, self._forget = self._forget, lambda: None
        forget()
        self._context.state.close()

    def _is_part(self, record: Record | None) -> bool:
        """Whether the job that is looked at has made this one."""
        looked_at = find(self._context, self._job) if record is not None and record.parent else None
        return record is not None and looked_at is not None and record.parent == looked_at.arn

    def _details(self) -> Iterator[bytes]:
        record = find(self._context, self._job)
        if record is None:
            return
        for run in runs(self._context, record):
            logs = {host: os.path.join(run, "hosts", host, "log") for host in hosts(record)}
            if not self._sent.keys() & {*logs.values()}:
                yield from self._as_it_was(os.path.join(run, "hosts", ORDER), logs)
            for host, log in logs.items():
                yield from self._lines(log, host)
        run = newest_run(self._context, record)
        yield from self._curves(record, run)
        report = {"report": os.path.exists(os.path.join(run, TIMELINE))}
        yield _event("job", {**row(record), **details(self._context, record), **report})

    def _as_it_was(self, order: str, logs: Mapping[str, str]) -> Iterator[bytes]:
        """What the hosts have written so far, in the order of time."""
        try:
            with open(order, encoding="utf-8") as file:
                pieces = in_order(file.read().split("\n")[:-1], _FIRST)
            for host, begin, end in pieces:
                with open(logs[host], "rb") as log:
                    log.seek(begin)
                    text = log.read(end - begin).decode("utf-8", "replace")
                self._sent[logs[host]] = end
                yield _event("log", {"host": host, "text": text})
        except (OSError, ValueError, KeyError):
            return  # of another version: one host after the other

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


def in_order(lines: Sequence[str], most: int) -> list[tuple[str, int, int]]:
    """The pieces of logs that ``lines`` tell of: host, begin and end in its log; the last ``most`` bytes of each."""
    written = [(host, int(size)) for size, _, host in (line.partition(" ") for line in lines)]
    left: dict[str, int] = {}
    for host, size in written:
        left[host] = left.get(host, 0) + size
    first = {host: max(0, size - most) for host, size in left.items()}
    at = dict.fromkeys(left, 0)
    found: list[tuple[str, int, int]] = []
    for host, size in written:
        begin, at[host] = max(at[host], first[host]), at[host] + size
        if begin >= at[host]:
            continue
        if found and found[-1][0] == host:
            found[-1] = host, found[-1][1], at[host]
        else:
            found.append((host, begin, at[host]))
    return found


def _event(kind: str, value: Any) -> bytes:
    return f"event: {kind}\ndata: {json.dumps(value)}\n\n".encode()
