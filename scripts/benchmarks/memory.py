"""The supervisor's own memory at its highest (VmHWM), with 1 and with 8 ranks, and the rank stub's under torchrun."""

from __future__ import annotations

import tempfile
from pathlib import Path

from benchmarks import trial
from benchmarks.figure import Figure

SCRIPT = """\
import os, pathlib, time
rank = os.environ.get("RANK", "0")
pathlib.Path(os.environ["BENCH_FOLDER"], "ready-" + rank).write_text(str(os.getppid()))
while not pathlib.Path(os.environ["BENCH_FOLDER"], "go").exists():
    time.sleep(0.05)
"""
MIB = 1024.0


def highest(pid: int) -> float:
    """VmHWM of a process in MiB."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) / MIB
    raise SystemExit(f"bench: process {pid} has no VmHWM")


def watch(bench: trial.Bench, launcher: str, ranks: int) -> tuple[float, float]:
    """VmHWM of `train` and of its first rank's parent, while ``ranks`` ranks are running."""
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        base = trial.make(Path(folder) / "job", SCRIPT)
        marks = Path(folder)
        process = trial.start(
            bench.train, base, None, MUSTER_LAUNCHER=launcher, MUSTER_SLOTS=str(ranks), BENCH_FOLDER=folder
        )
        trial.until(lambda: len([*marks.glob("ready-*")]) == ranks, process, base)
        parent = int((marks / "ready-0").read_text())
        found = highest(process.pid), highest(parent)
        (marks / "go").touch()
        trial.finish(process, base, 0)
    return found


def measure(bench: trial.Bench) -> list[Figure]:
    one, _ = watch(bench, "ranks", 1)
    eight, _ = watch(bench, "ranks", 8)
    agent, stub = watch(bench, "torchrun", 1)
    return [
        Figure(
            "supervisor's own VmHWM, 1 and 8 ranks",
            "≤ 16 MiB + 0.1 MiB per rank",
            f"{one:.1f} and {eight:.1f} MiB (over torchrun {agent:.1f})",
            one <= 16.1 and eight <= 16.8,
            {"1_rank_mib": round(one, 2), "8_ranks_mib": round(eight, 2), "over_torchrun_mib": round(agent, 2)},
            {"train, 1 rank": [one], "train, 8 ranks": [eight], "train, torchrun, 1 rank": [agent]},
            "MiB",
        ),
        Figure("rank stub's VmHWM", "≤ 9 MiB", f"{stub:.1f} MiB", stub <= 9, {"stub_mib": round(stub, 2)}),
    ]
