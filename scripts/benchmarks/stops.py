"""SIGTERM to the last of several hosts: the time until the last rank's handler, on whichever host that is."""

from __future__ import annotations

import signal
import statistics
import tempfile
from pathlib import Path

from benchmarks import hosts, trial
from benchmarks.figure import Figure, in_milliseconds, milliseconds

GOAL = 0.2


def measure(bench: trial.Bench) -> list[Figure]:
    return [_of(bench, size) for size in hosts.sizes(bench)]


def _of(bench: trial.Bench, size: int) -> Figure:
    took = []
    for _ in range(hosts.runs(bench)):
        with tempfile.TemporaryDirectory(prefix="bench-") as folder:
            job = hosts.Job(hosts.ours(bench, size), Path(folder), "none", size)
            try:
                job.until("ready-", size)
                began = hosts.send(hosts.supervisor(job, size - 1), signal.SIGTERM)
                job.until("told-", size)
                took.append(max(job.at(f"told-{rank}") for rank in range(size)) - began)
                job.ended()
            finally:
                job.close()
    middle = statistics.median(took)
    return Figure(
        f"SIGTERM to one host → the last rank's handler on the last of {size} hosts",
        f"≤ {milliseconds(GOAL)}",
        f"{milliseconds(middle)} ({milliseconds(min(took))} to {milliseconds(max(took))})",
        middle <= GOAL,
        {"seconds": took},
        {"musterpoint": in_milliseconds(took)},
        limit=GOAL * 1000,
    )
