"""The files that tell the control plane how the job ended. Nothing here raises: what can't be written is said."""

from __future__ import annotations

import os
from typing import Mapping

from musterpoint.job.model import Paths
from musterpoint.report.room import outcome_of, place
from musterpoint.report.verdict import Verdict
from musterpoint.supervise.outcome import Outcome

TERMINATION_LOG = "/dev/termination-log"
CLOCK_SLACK = 2.0
"""Seconds by which a file's time may lie before the job's start, on file systems with coarse or other clocks."""


def write(
    outcome: Outcome, paths: Paths, started_at: float, environ: Mapping[str, str], *,
    attempt: int = 1, termination_log: str = TERMINATION_LOG,
) -> list[str]:  # fmt: skip
    """Writes ``failure`` or ``success``, ``outcome.json`` and, on Kubernetes, the termination log.

    A non-empty failure file that the user's script wrote after ``started_at`` (seconds since the epoch) is kept. A
    stopped job gets neither file. Returns what could not be written, as sentences.
    """
    verdict = Verdict.from_outcome(outcome, attempt)
    problems: list[str] = []
    if verdict.kind not in ("done", "stopped") and paths.failure and not _has_own_words(paths.failure, started_at):
        problems.append(put(paths.failure, verdict.reason.encode("utf-8", "replace"), place(paths.failure)))
    elif verdict.kind == "done" and paths.success:
        problems.append(put(paths.success, b""))
    if beside := outcome_of(paths):
        import json

        text = json.dumps(verdict.to_json(), indent=2, ensure_ascii=False) + "\n"
        problems.append(put(beside, text.encode("utf-8", "replace"), place(beside)))
    for path in filter(None, (paths.failure, beside)):
        _forget(place(path))
    if verdict.reason and environ.get("KUBERNETES_SERVICE_HOST") and os.path.exists(termination_log):
        problems.append(_put_in_place(termination_log, verdict.reason.encode("utf-8", "replace")))
    return [problem for problem in problems if problem]


def put(path: str, data: bytes, reserved: str = "") -> str:
    """Writes ``data`` to ``path`` atomically; returns an empty string, or the sentence of why not.

    ``reserved`` is a file whose room on the disk is used if it exists. Where no second file can be made, ``path``
    itself is written.
    """
    draft = reserved if reserved and os.path.exists(reserved) else f"{path}.{os.getpid()}.tmp"
    try:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        _overwrite(draft, data)
        os.replace(draft, path)
        return ""
    except OSError:
        _forget(draft)
    problem = _put_in_place(path, data)
    if problem and _is_empty(path):
        _forget(path)
    return problem


def _put_in_place(path: str, data: bytes) -> str:
    try:
        _overwrite(path, data)
    except OSError as error:
        return f"{path} could not be written: {error.strerror}"
    return ""


def _overwrite(path: str, data: bytes) -> None:
    """Writes over the bytes that are there, then cuts: room that was set aside stays ours until it is used."""
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | getattr(os, "O_CLOEXEC", 0), 0o644)
    try:
        left = memoryview(data)
        while left:
            left = left[os.write(fd, left) :]
        if os.fstat(fd).st_size > len(data):
            os.ftruncate(fd, len(data))
    finally:
        os.close(fd)


def _has_own_words(path: str, started_at: float) -> bool:
    """Whether somebody wrote a non-empty file there during this job; one left by an earlier run isn't this job's."""
    try:
        found = os.stat(path)
    except OSError:
        return False
    return found.st_size > 0 and found.st_mtime >= started_at - CLOCK_SLACK


def _is_empty(path: str) -> bool:
    try:
        return os.path.getsize(path) == 0
    except OSError:
        return False


def _forget(path: str) -> None:
    try:
        os.unlink(path)
    except OSError:
        pass
