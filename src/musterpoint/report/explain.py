"""The words for everything that can go wrong under a supervisor."""

from __future__ import annotations

import errno
import time
from typing import Callable

from musterpoint import exit_codes
from musterpoint.launch.plan import ProcessPlan
from musterpoint.peers import Failure
from musterpoint.report import reason
from musterpoint.supervise.outcome import AttendantEnd, RankEnd


class Explain:
    """Turns what happened on ``host`` into failures. ``mask`` hides known secrets; ``code_root`` shortens paths."""

    def __init__(self, host: str, mask: Callable[[str], str] = str, code_root: str = "") -> None:
        self._host, self._mask, self._code_root = host, mask, code_root

    def rank(self, end: RankEnd) -> Failure:
        """A rank that ended by itself, and not with 0."""
        return reason.failure_of(end, self._host, self._mask, self._code_root)

    def attendant(self, end: AttendantEnd) -> Failure:
        """A launcher or service that ended before its ranks did."""
        when = "before any of its ranks had come up" if not end.registered else "while its ranks were running"
        how = f"killed by {reason.signal_name(-end.status)}" if end.status < 0 else f"exit code {end.status}"
        lines = [f"muster: {end.name} ended {when} ({how}) on {self._host}"]
        said = self._mask(end.tail.decode("utf-8", "replace")).strip().splitlines()
        lines += ["its last lines:", *said[-8:]] if said else []
        return self._failure(exit_codes.LAUNCHER, reason.fit(lines), "infra")

    def cannot_start(self, process: ProcessPlan, error: OSError, step: str) -> Failure:
        """``exec`` or ``chdir`` failed for a process of the plan."""
        program = process.words[0]
        if step == "chdir":
            text = f"can't enter the working directory {process.cwd}: {error.strerror}"
        else:
            text = f"can't execute {program}: {error.strerror}{_advice(error)}"
        return self._failure(exit_codes.USAGE, reason.fit([f"muster: {process.name} on {self._host}: {text}"]), "user")

    def wrong_world(self, rank: int, got: int, planned: int) -> Failure:
        """The launcher made another world than the one planned."""
        text = f"muster: rank {rank} on {self._host} got a world of {got} rank(s), but {planned} were planned"
        return self._failure(exit_codes.LAUNCHER, text, "infra")

    def _failure(self, code: int, text: str, kind: str) -> Failure:
        return Failure(self._host, code, "muster", kind, text, at=time.time())


def _advice(error: OSError) -> str:
    if error.errno == errno.EACCES:
        return " (is it executable?)"
    if error.errno == errno.ENOEXEC:
        return " (a script needs a first line such as #!/bin/sh)"
    return ""
