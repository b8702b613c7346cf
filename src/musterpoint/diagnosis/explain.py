"""The words for everything that can go wrong under a supervisor."""

from __future__ import annotations

import errno
import time
from typing import Callable

from musterpoint import exit_codes
from musterpoint.diagnosis import reason
from musterpoint.diagnosis.traceback import is_greeting
from musterpoint.failure import Failure
from musterpoint.launch.plan import ProcessPlan
from musterpoint.supervise.outcome import RankEnd, UnrankedEnd


class Explain:
    """Turns what happened on ``host`` into failures. ``mask`` hides known secrets; ``code_root`` shortens paths."""

    def __init__(self, host: str, mask: Callable[[str], str] = str, code_root: str = "") -> None:
        self._host, self._mask, self._code_root = host, mask, code_root

    def rank(self, end: RankEnd) -> Failure:
        """A rank that ended by itself, and not with 0."""
        return reason.failure_of(end, self._host, self._mask, self._code_root)

    def orphans(self, end: RankEnd) -> Failure | None:
        """What a rank left behind when it was stopped; None where that raised nothing of its own."""
        from musterpoint.diagnosis import culprit

        error = culprit.find(end.tail) or culprit.find(end.stdout_tail)
        raised = error is not None and error.kind in ("exception", "fatal") and not error.echo
        # sys.exit() in a handler that came in the midst of a clean-up is printed, too
        ended = error is not None and error.text.startswith(("SystemExit", "KeyboardInterrupt"))
        return self.rank(end) if raised and not ended else None

    def unranked(self, end: UnrankedEnd) -> Failure:
        """A launcher or service that ended before its ranks did. One of the user's own fails as a rank does."""
        if end.users:
            return reason.of_service(end, self._host, self._mask, self._code_root)
        when = "before any of its ranks had come up" if not end.registered else "while its ranks were running"
        when = "before the job was done" if end.role == "service" else when
        how = f"killed by {reason.signal_name(-end.status)}" if end.status < 0 else f"exit code {end.status}"
        lines = [f"muster: {end.name} ended {when} ({how}) on {self._host}"]
        said = self._mask(end.tail.decode("utf-8", "replace")).strip().splitlines()
        said = [line for line in said if not is_greeting(line)]
        lines += ["its last lines:", *said[-8:]] if said else []
        # an mpirun that ends by itself has lost a rank or a host, and whoever knows which may say so in a moment
        kind = "peer" if end.mpi and end.registered and end.status >= 0 else "infra"
        return self._failure(exit_codes.LAUNCHER, reason.fit(lines), kind)

    def abort_code(self, tail: bytes) -> int | None:
        """The exit code that a rank gave to ``MPI_Abort``, as its MPI prints it; None where it prints no such thing."""
        from musterpoint.diagnosis import culprit

        return culprit.abort_code(tail)

    def cannot_start(self, process: ProcessPlan, error: OSError, step: str) -> Failure:
        """``fork``, ``exec`` or ``chdir`` failed for a process of the plan."""
        program = process.words[0]
        if step == "fork":
            text = (
                f"no process can be started: {error.strerror}; give the container more memory or a higher limit on "
                "processes (docker run --pids-limit, ulimit -u)"
            )
        elif step == "chdir":
            text = f"can't enter the working directory {process.cwd}: {error.strerror}"
        else:
            text = f"can't execute {program}: {error.strerror}{_advice(error)}"
        said = reason.fit([f"muster: {process.name} on {self._host}: {self._mask(text)}"])
        ours = (exit_codes.LAUNCHER, said, "infra") if step == "fork" else (exit_codes.USAGE, said, "user")
        return self._failure(*ours)._replace(rank=process.rank, local_rank=process.local_rank)

    def wrong_world(self, rank: int, got: int, planned: int) -> Failure:
        """The launcher made another world than the one planned."""
        text = f"muster: rank {rank} on {self._host} got a world of {got} rank(s), but {planned} were planned"
        return self._failure(exit_codes.LAUNCHER, text, "infra")

    def unplanned_rank(self, rank: int, local_rank: int, planned: int) -> Failure:
        """The launcher brought up a rank that the plan puts on another host, or the same one twice."""
        text = (
            f"muster: the launcher started rank {rank} (local rank {local_rank}) on {self._host}, "
            f"where {planned} rank(s) were planned: it put ranks on other hosts than the plan says"
        )
        return self._failure(exit_codes.LAUNCHER, text, "infra")

    def left_without_finalize(self, rank: int, local_rank: int) -> Failure:
        """MPI ended the job because a rank had ended with 0 without telling it."""
        text = (
            f"rank {rank} (local rank {local_rank}) on {self._host} ended with exit code 0, but without MPI_Finalize, "
            "while other ranks ran on: MPI ended them, as they may wait for it for ever"
        )
        return Failure(self._host, 1, "user", "user", text, rank, local_rank, None, time.time())

    def ended_by_mpi(self, rank: int, local_rank: int) -> Failure:
        """MPI told a rank to end; what for, another host may know."""
        text = f"muster: MPI told rank {rank} (local rank {local_rank}) on {self._host} to end: a rank left the job"
        return self._failure(exit_codes.LAUNCHER, text, "peer")

    def inner(self, failure: Failure) -> Failure:
        """What a launcher of ours that runs as the job's program says of itself: of its words, those that may stand."""
        kind = failure.kind if failure.kind in ("user", "infra") else "user"
        said = f"muster: {failure.reason.removeprefix('muster: ')}"
        return self._failure(failure.code, reason.fit([self._mask(said)]), kind)

    def daemon_refused(self, host: str, said: str) -> Failure:
        """An MPI daemon that mpirun asked for on ``host`` never ran."""
        text = f"muster: mpirun's daemon could not be started on {host}: {self._mask(said).strip()}"
        return Failure(host, exit_codes.LAUNCHER, "muster", "infra", reason.fit([text]), at=time.time())

    def _failure(self, code: int, text: str, kind: str) -> Failure:
        return Failure(self._host, code, "muster", kind, text, at=time.time())


def _advice(error: OSError) -> str:
    if error.errno == errno.EACCES:
        return " (is it executable?)"
    if error.errno == errno.E2BIG:
        return " (is a hyperparameter or a variable larger than 128 KiB? send it as a file of an input channel)"
    if error.errno == errno.ENOEXEC:
        return " (a script needs a first line such as #!/bin/sh)"
    return ""
