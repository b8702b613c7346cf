"""Which jobs can be started again on their hosts, and what is said about it."""

from __future__ import annotations

from musterpoint.base.errors import UsageError
from musterpoint.base.settings import Settings
from musterpoint.core.job.model import Job


def check_restartable(job: Job, options: Settings) -> None:
    """Checks a job that is to be started again after failures.

    Raises:
        UsageError: this job can't be; the message says why, and what to do.
    """
    given = f"--max-restarts {options.max_restarts}"
    if options.on_failure == "finish":
        raise UsageError(
            f"{given} with --on-failure finish: a restart ends the other ranks, which are to go on: leave one out"
        )
    started = job.started
    if started is not None and (started.local_size > 1 or started.mpi):
        who = "an mpirun" if started.mpi else "an entry point for every rank"
        raise UsageError(
            f"{given}: the platform has started {who}, and no process of it can be started a second time from here: "
            "start one entry point per host, or let the platform restart the job"
        )


def note(options: Settings) -> str:
    """What is said before the first attempt."""
    after = "an error of the program's own, too, " if options.restart_on == "user" else ""
    times = f"{options.max_restarts} time{'s' if options.max_restarts > 1 else ''}"
    return (
        f"--max-restarts: all ranks are started again up to {times} after {after}a killed rank, a failure of a host, "
        "a device or the network, or a stall"
    )
