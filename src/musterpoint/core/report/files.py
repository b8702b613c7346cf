"""The files that tell the control plane how the job ended. Nothing here raises: problems are returned."""

from __future__ import annotations

import errno
import json
import os
import stat
from typing import Any, Callable, Literal, Mapping

from musterpoint.base.failure import Cause, Kind, fit, with_secondary
from musterpoint.base.records import NamedTuple
from musterpoint.base.timeline import Timeline
from musterpoint.core.job.model import Paths
from musterpoint.core.report.output_directory import OUTCOME, TIMELINE, OutputDirectory
from musterpoint.core.supervise.retry import why_not_again
from musterpoint.core.supervise.state import Outcome

TERMINATION_LOG = "/dev/termination-log"
_MOST_BYTES = 4 << 20
"""Of one file; the end of a longer text is cut off."""
_DIRECTORY = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0) | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)


def write(
    outcome: Outcome,
    paths: Paths,
    output: OutputDirectory,
    environ: Mapping[str, str],
    *,
    termination_log: str = TERMINATION_LOG,
    data: Mapping[str, Any] | None = None,
) -> list[str]:
    """Writes ``failure`` or ``success``, ``outcome.json`` and, on Kubernetes, the termination log.

    A non-empty failure file that the user's script wrote in this run is kept, and no ``success`` is written then. A
    stopped job gets neither file. ``data``: what became of its checkpoints and outputs, for ``outcome.json``.
    Returns what could not be written, as sentences.
    """
    record = OutcomeRecord.from_outcome(outcome)
    problems: list[str] = []
    failure, success = os.path.basename(paths.failure), os.path.basename(paths.success)
    output.reopen()
    users_text = bool(failure) and output.has_users_text(failure)
    failed = record.kind not in ("done", "stopped")
    if failed and failure and not users_text:
        problems.append(write_file(output, failure, record.reason.encode("utf-8", "replace")))
    if success and (failed or users_text):
        output.remove(success)
    elif success and record.kind == "done":
        if failure:
            output.remove(failure)  # an empty one, or an earlier run's
        problems.append(write_file(output, success, b""))
    if output.folder:
        warned = {"warnings": list(outcome.warnings)} if outcome.warnings else {}
        text = json.dumps({**record.to_json(), **warned, **(data or {})}, indent=2, ensure_ascii=False) + "\n"
        problems.append(write_file(output, OUTCOME, text.encode("utf-8", "replace")))
    if record.reason and environ.get("KUBERNETES_SERVICE_HOST") and os.path.exists(termination_log):
        problems.append(_write_in_place(termination_log, None, record.reason.encode("utf-8", "replace")))
    return [problem for problem in problems if problem]


def write_file(output: OutputDirectory, name: str, data: bytes) -> str:
    """Writes the file ``name`` of ``output`` atomically; returns an empty string, or why it failed.

    Uses the space reserved for it. Where no second file can be made, ``name`` itself is written.
    """
    if output.fd < 0:
        return _sentence(os.path.join(output.folder, name), output.error)
    fd, draft = output.take_reserved(name)
    try:
        if fd < 0:
            draft = f".{name}.{os.urandom(8).hex()}.tmp"
            fd = output.create(draft)
        try:
            _overwrite(fd, data)
        finally:
            os.close(fd)
        os.rename(draft, name, src_dir_fd=output.fd, dst_dir_fd=output.fd)
        return ""
    except OSError:
        output.remove(draft)
    problem = _write_in_place(name, output.fd, data, output.folder)
    if problem and not output.has_users_text(name):
        output.remove(name)
    return problem


def _write_in_place(name: str, folder: int | None, data: bytes, shown: str = "") -> str:
    """Writes the file ``name`` without a second file; refuses links."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        fd = os.open(name, flags, 0o644, dir_fd=folder)
        try:
            found = os.fstat(fd)
            if not stat.S_ISREG(found.st_mode) or found.st_nlink > 1:
                raise OSError(errno.EINVAL, "it isn't a file of its own")
            _overwrite(fd, data)
        finally:
            os.close(fd)
    except OSError as error:
        return _sentence(os.path.join(shown, name), error)
    return ""


def _sentence(path: str, error: OSError | None) -> str:
    return f"{path} could not be written: {error.strerror if error else 'it was never there'}"


def _overwrite(fd: int, data: bytes) -> None:
    """Writes over the old bytes, then truncates, so that reserved space isn't released before it is used."""
    left = memoryview(data)
    while left:
        left = left[os.write(fd, left) :]
    if os.fstat(fd).st_size > len(data):
        os.ftruncate(fd, len(data))


class OutcomeRecord(NamedTuple):
    """What ``outcome.json`` holds: how the job ended.

    ``cause`` is empty when all went well. ``kind`` is the ``class``. ``retryable`` says whether the same job may well
    succeed. ``host`` and ``rank`` are where it began; ``signal`` is what killed the rank, if one did. ``attempt`` is
    which one ended so, 1 for the first; ``attempts`` how many were made. ``role``: of the rank, in a job of several.
    """

    code: int
    cause: Cause | Literal[""]
    kind: Kind | Literal["stopped", "done"]
    retryable: bool
    host: str
    rank: int | None
    signal: int | None
    attempt: int
    attempts: int
    reason: str
    role: str = ""

    @classmethod
    def from_outcome(cls, outcome: Outcome) -> OutcomeRecord:
        failure, made = outcome.failure, (outcome.attempts, outcome.attempts)
        if failure is not None:
            return cls(
                outcome.code,
                failure.cause,
                failure.kind,
                not why_not_again(failure),
                failure.host,
                failure.rank,
                failure.signal,
                *made,
                with_secondary(failure, outcome.secondary, outcome.no_restart),
                failure.role,
            )
        if outcome.stopped_by:
            reason = f"stopped by the platform on {outcome.stopped_by}"
            if outcome.spoilt is not None:
                reason = fit([f"{reason}; while it was stopping:", outcome.spoilt.reason])
            return cls(outcome.code, "platform", "stopped", True, outcome.stopped_by, None, None, *made, reason)
        if outcome.code:
            reason = f"muster: ended with exit code {outcome.code} for a reason nobody reported"
            return cls(outcome.code, "muster", "infra", True, "", None, None, *made, reason)
        return cls(outcome.code, "", "done", False, "", None, None, *made, "")

    def to_json(self) -> dict[str, Any]:
        """The object in ``outcome.json``; ``kind`` is called ``class`` there."""
        found = {("class" if name == "kind" else name): value for name, value in self._asdict().items()}
        return found if self.role else {name: value for name, value in found.items() if name != "role"}


def write_timeline(
    timeline: Timeline, output: OutputDirectory, mask: Callable[[Any], Any] = lambda facts: facts
) -> list[str]:
    """Writes ``timeline.json`` into ``output``; ``mask`` hides secrets in each moment.

    Returns what could not be written, as sentences.
    """
    if not output.folder:
        return []
    rows = ",\n ".join(json.dumps(mask(row), ensure_ascii=False, default=str) for row in timeline.to_json())
    problem = write_file(output, TIMELINE, f"[{rows}]\n".encode("utf-8", "replace"))
    return [problem] if problem else []


def keep(directory: str, host: str, name: str, content: str | bytes) -> str:
    """Writes ``content`` to ``<directory>/muster/<host>/<name>`` (replaced if it is there) and returns that path.

    Links that the user's program has put there aren't followed.

    Raises:
        OSError: it can't be written.
    """
    os.makedirs(directory, exist_ok=True)
    folder = os.open(directory, os.O_RDONLY | getattr(os, "O_CLOEXEC", 0))
    try:
        for part in ("muster", host):
            try:
                os.mkdir(part, dir_fd=folder)
            except FileExistsError:
                pass
            below = os.open(part, _DIRECTORY, dir_fd=folder)
            os.close(folder)
            folder = below
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)
        with open(os.open(name, flags, 0o644, dir_fd=folder), "wb") as file:
            data = content.encode("utf-8", "replace") if isinstance(content, str) else content
            file.write(data[:_MOST_BYTES])
    finally:
        os.close(folder)
    return os.path.join(directory, "muster", host, name)
