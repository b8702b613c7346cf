"""A rank fails on the last of several hosts: the time until every host has ended."""

from __future__ import annotations

import statistics
import tempfile
from pathlib import Path

from benchmarks import hosts, trial
from benchmarks.figure import Figure, in_milliseconds, milliseconds

GOALS = {2: 0.1, 8: 0.15, 64: 0.5}


def measure(bench: trial.Bench) -> list[Figure]:
    return [_of(bench, size) for size in hosts.sizes(bench)]


def _of(bench: trial.Bench, size: int) -> Figure:
    took: dict[str, list[float]] = {"musterpoint": [], "torchrun": []}
    for _ in range(hosts.runs(bench)):
        for name, commands in (("musterpoint", hosts.ours(bench, size)), ("torchrun", hosts.torchrun(bench, size))):
            with tempfile.TemporaryDirectory(prefix="bench-") as folder:
                job = hosts.Job(commands, Path(folder), "fails", size)
                try:
                    job.until("struck", 1)
                    took[name].append(job.ended() - job.at("struck"))
                finally:
                    job.close()
    ours, theirs = (statistics.median(took[name]) for name in took)
    ratios = [mine / plain for mine, plain in zip(took["musterpoint"], took["torchrun"], strict=True)]
    return Figure(
        f"a rank fails → all of {size} hosts have ended",
        f"≤ {milliseconds(GOALS[size])}",
        f"{milliseconds(ours)}; torchrun {milliseconds(theirs)}: "
        f"{statistics.median(ratios):.2f} of it ({min(ratios):.2f} to {max(ratios):.2f})",
        ours <= GOALS[size],
        {"seconds": took, "ratios": ratios},
        {name: in_milliseconds(values) for name, values in took.items()},
        limit=GOALS[size] * 1000,
    )
