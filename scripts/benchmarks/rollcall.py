"""The roll call of 1,000 and 10,000 members simulated in one process, and the leader's processor time for beats."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

from benchmarks import trial
from benchmarks.figure import Figure

PROGRAM = Path(__file__).resolve().parent / "members.py"
BEATS_FOR = "20"
PAIRED = 10_000
PAIRS = 3
MOST_RATIO = 1.2
GOALS = {1000: (0.5, 20.0), 10_000: (4.0, 60.0)}


def call(bench: trial.Bench, members: int, *more: str) -> dict[str, Any]:
    command = [str(bench.python), str(PROGRAM), "--members", str(members), *more]
    done = subprocess.run(command, stdout=subprocess.PIPE, env=trial.environment(), check=True, timeout=300)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def with_secret(bench: trial.Bench) -> Figure:
    """Pairs of runs one behind the other, since what else the machine does changes; the middle one of their ratios."""
    pairs = [(call(bench, PAIRED), call(bench, PAIRED, "--secret")) for _ in range(PAIRS)]
    ratio = sorted(secret["seconds"] / plain["seconds"] for plain, secret in pairs)[PAIRS // 2]
    return Figure(
        f"the same with a secret, {PAIRED:,} members", f"≤ {MOST_RATIO:g} × without", f"{ratio:.2f} ×",
        ratio <= MOST_RATIO, {"pairs": pairs},
    )  # fmt: skip


def measure(bench: trial.Bench) -> list[Figure]:
    thousand = call(bench, 1000, "--beats", BEATS_FOR)
    figures = []
    for members, found in ((1000, thousand), (10_000, call(bench, 10_000))):
        seconds, memory = GOALS[members]
        most = found["leader_rss_most_mib"]
        figures.append(
            Figure(
                f"roll call, first connect → last of {members:,} members holds the roster",
                f"≤ {seconds:g} s, {memory:g} MiB",
                f"{found['seconds']:.2f} s, {most:.0f} MiB",
                found["seconds"] <= seconds and most <= memory,
                found,
            )
        )
    figures.append(with_secret(bench))
    beats = thousand["beats_cpu_percent"]
    figures.append(Figure("beats at 1,000 members, every 5 s", "≤ 1 % of a core", f"{beats:.2f} %", beats <= 1, {}))
    return figures
