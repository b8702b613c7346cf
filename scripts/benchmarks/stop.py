"""SIGTERM to the last rank's handler, with our stdout read and blocked; and the last rank's end to `train`'s own."""

from __future__ import annotations

import os
import signal
import statistics
import tempfile
import threading
import time
from pathlib import Path

from benchmarks import trial
from benchmarks.figure import Figure, in_milliseconds, milliseconds

STOPPED = 143
PREAMBLE = """\
import os, signal, threading, time
rank, folder = os.environ["RANK"], os.environ["BENCH_FOLDER"]

def mark(name, text=""):
    with open(os.path.join(folder, "." + name), "w") as file:
        file.write(text)
    os.rename(os.path.join(folder, "." + name), os.path.join(folder, name))

def leave(*_):
    mark("end-" + rank, repr(time.monotonic()))
    os._exit(0)
"""
HANDLER = """\
def flood():
    while True:
        os.write(1, b"x" * 4095 + b"\\n")

signal.signal(signal.SIGTERM, leave)
if os.environ["BENCH_FLOOD"]:
    threading.Thread(target=flood, daemon=True).start()
    time.sleep(0.5)
mark("ready-" + rank)
while True:
    time.sleep(60)
"""
ENDING = """\
mark("ready-" + rank)
while not os.path.exists(os.path.join(folder, "go")):
    time.sleep(0.01)
time.sleep(0.3)
leave()
"""


def ends(folder: Path) -> list[float]:
    return [float(path.read_text()) for path in folder.glob("end-*")]


def drain(reader: int) -> None:
    while os.read(reader, 1 << 20):
        pass


def stop(bench: trial.Bench, ranks: int, blocked: bool) -> float:
    """Seconds from SIGTERM to `train` until the last rank's handler ran."""
    with tempfile.TemporaryDirectory(prefix="bench-") as name:
        folder = Path(name)
        base = trial.make(folder / "job", PREAMBLE + HANDLER)
        reader, writer = os.pipe()
        options = {"MUSTER_LAUNCHER": "ranks", "MUSTER_SLOTS": str(ranks), "BENCH_FOLDER": name}
        process = trial.start(bench.train, base, writer, BENCH_FLOOD="1" if blocked else "", **options)
        os.close(writer)
        trial.until(lambda: len([*folder.glob("ready-*")]) == ranks, process, base)
        time.sleep(0.5)
        began = time.monotonic()
        process.send_signal(signal.SIGTERM)
        trial.until(lambda: len(ends(folder)) == ranks or process.poll() is not None, process, base)
        threading.Thread(target=drain, args=(reader,), daemon=True).start()
        trial.finish(process, base, STOPPED)
        found = ends(folder)
        if len(found) != ranks:
            raise SystemExit(f"bench: {len(found)} of {ranks} handlers ran")
        return max(found) - began


def end(bench: trial.Bench, ranks: int) -> float:
    """Seconds from the last rank's end until `train` is gone."""
    with tempfile.TemporaryDirectory(prefix="bench-") as name:
        folder = Path(name)
        base = trial.make(folder / "job", PREAMBLE + ENDING)
        options = {"MUSTER_LAUNCHER": "ranks", "MUSTER_SLOTS": str(ranks), "BENCH_FOLDER": name}
        process = trial.start(bench.train, base, None, **options)
        trial.until(lambda: len([*folder.glob("ready-*")]) == ranks, process, base)
        (folder / "go").touch()
        return trial.finish(process, base, 0) - max(ends(folder))


def stop_figure(bench: trial.Bench, ranks: int, goal: float, runs: int) -> Figure:
    read: list[float] = []
    blocked: list[float] = []
    for _ in range(runs):
        read.append(stop(bench, ranks, False))
        blocked.append(stop(bench, ranks, True))
    middle, full = statistics.median(read), statistics.median(blocked)
    return Figure(
        f"SIGTERM to the last of {ranks} ranks' handlers; with our stdout blocked",
        f"≤ {milliseconds(goal)}",
        f"{milliseconds(middle)}; {milliseconds(full)}",
        middle <= goal and full <= goal,
        {"read_s": [round(value, 5) for value in read], "blocked_s": [round(value, 5) for value in blocked]},
        {"train": in_milliseconds(read), "train, stdout blocked": in_milliseconds(blocked)},
        limit=goal * 1000,
    )


def measure(bench: trial.Bench) -> list[Figure]:
    few = max(3, bench.runs // 4)
    times = {ranks: [end(bench, ranks) for _ in range(few)] for ranks in (1, 8)}
    one, eight = statistics.median(times[1]), statistics.median(times[8])
    return [
        stop_figure(bench, 8, 0.020, few),
        stop_figure(bench, 64, 0.100, 3),
        Figure(
            "last rank ended → `train` ended, one host, 1 and 8 ranks",
            "≤ 50 ms",
            f"{milliseconds(one)} and {milliseconds(eight)}",
            max(one, eight) <= 0.050,
            {f"{ranks}_ranks_s": [round(value, 5) for value in values] for ranks, values in times.items()},
            {f"train, {ranks} rank{'s' * (ranks > 1)}": in_milliseconds(values) for ranks, values in times.items()},
            limit=50,
        ),
    ]
