"""``muster local`` from Python: a function that runs a job and returns its description."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Mapping, NamedTuple

from musterpoint.base.errors import UsageError
from musterpoint.local.job_file import to_words

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from musterpoint.local.options import Options

_AFTER_STOP = 150.0
"""Seconds that a stopped job gets: the platform's 120, and the report."""


class HostDescription(NamedTuple):
    """One host of a job: its name, its exit code (None: it has none), and the file with its whole log."""

    name: str
    code: int | None
    log: Path


class JobDescription(NamedTuple):
    """How a local job ended, and where what it left is.

    ``name``: the job's name. ``status``: as DescribeTrainingJob's. ``code``: the job's exit code. ``reason``: why it
    failed, empty otherwise. ``output``: the directory with everything. ``hosts``: in rank order. ``fields``:
    ``job.json`` as it is.
    """

    name: str
    status: Literal["Completed", "Failed", "Stopped"]
    code: int
    reason: str
    output: Path
    hosts: tuple[HostDescription, ...]
    fields: Mapping[str, Any]

    @property
    def log(self) -> str:
        """The logs of all hosts, one after the other."""
        return "".join(host.log.read_text(encoding="utf-8", errors="replace") for host in self.hosts)

    def rank_log(self, rank: int) -> str:
        """What a rank wrote; empty where there is no such rank."""
        files = self.output.glob(f"hosts/*/ranks/rank-{rank}.log")
        return "".join(file.read_text(encoding="utf-8", errors="replace") for file in files)

    def timeline(self) -> list[dict[str, Any]]:
        """The events of ``timeline.json``, oldest first."""
        events: list[dict[str, Any]] = json.loads((self.output / "timeline.json").read_text(encoding="utf-8"))
        return events

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> JobDescription:
        """Builds it from the fields that ``muster local --json`` prints."""
        hosts = tuple(HostDescription(host["Host"], host["ExitCode"], Path(host["Log"])) for host in fields["Hosts"])
        place = fields["OutputDataConfig"]["S3OutputPath"].removeprefix("file://")
        return cls(
            fields["TrainingJobName"],
            fields["TrainingJobStatus"],
            fields["ExitCode"],
            fields.get("FailureReason", ""),
            Path(place),
            hosts,
            fields,
        )


def run(
    program: str | os.PathLike[str],
    *arguments: object,
    hosts: int = 1,
    slots: int | None = None,
    launcher: str | None = None,
    timeout: float | None = None,
    environ: Mapping[str, str] | None = None,
    **options: Unpack[Options],
) -> JobDescription:
    """Runs ``program`` with ``arguments`` on ``hosts`` hosts of this machine, as ``muster local`` does.

    ``slots``: ranks per host. ``timeout``: seconds after which the job is stopped. ``environ``: in the place of this
    process's variables. ``options``: any option of ``muster local`` by its name, with ``_`` for ``-``: ``channel``,
    ``env``, ``hyperparameters`` and ``distribution`` take dicts; ``cpu_fallback=True``; ``output=path``.

    The hosts' output goes to stderr. Ctrl-C stops the job, as on a terminal.

    Raises:
        UsageError: an option, a file or this machine is wrong; it says what ``muster local`` says.
        TimeoutError: the job didn't end within ``timeout``; it has been stopped.
    """
    given = {"hosts": hosts, "slots": slots, "launcher": launcher, **options}
    words = to_words(given, None, "local.run")
    command = [sys.executable, "-m", "musterpoint", "local", "--json", *words, "--", os.fspath(program)]
    process = subprocess.Popen(
        [*command, *map(str, arguments)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        encoding="utf-8",
        env=None if environ is None else {**environ},
    )
    text = _output_of(process, timeout)
    try:
        fields = json.loads(text)
    except ValueError:
        raise UsageError(f"muster local {' '.join(words)}: code {process.returncode}, and no job was run") from None
    if "Error" in fields:
        raise UsageError(fields["Error"])
    return JobDescription.from_json(fields)


def _output_of(process: subprocess.Popen[str], timeout: float | None) -> str:
    """What ``process`` prints; it is stopped where that takes too long, or at Ctrl-C."""
    try:
        return process.communicate(timeout=timeout)[0]
    except subprocess.TimeoutExpired:
        _stop(process)
        raise TimeoutError(f"the job didn't end within {timeout:g} s, and was stopped") from None
    except BaseException:
        _stop(process)
        raise


def _stop(process: subprocess.Popen[str]) -> None:
    process.send_signal(signal.SIGTERM)
    try:
        process.communicate(timeout=_AFTER_STOP)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
