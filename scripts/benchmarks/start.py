"""`train` to the first line of the user's output, over the same script run bare."""

from __future__ import annotations

import statistics
import tempfile
import threading
import time
from pathlib import Path

from benchmarks import trial
from benchmarks.figure import Figure, in_milliseconds, milliseconds

SCRIPT = 'print("first line", flush=True)\n'


def first_line(command: list[str], base: Path) -> float:
    """Seconds from before the start of ``command`` until the script's line is here."""
    began = time.monotonic()
    process = trial.start(command, base)
    assert process.stdout is not None
    guard = threading.Timer(trial.LIMIT, process.kill)
    guard.start()
    seen = b""
    while b"first line\n" not in seen:
        data = process.stdout.read(65536)
        if not data:
            break
        seen += data
    elapsed = time.monotonic() - began
    guard.cancel()
    process.stdout.close()
    trial.finish(process, base, 0)
    return elapsed


def measure(bench: trial.Bench) -> list[Figure]:
    times: dict[str, list[float]] = {"bare": [], "their bare": [], "ours": [], "theirs": []}
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        for index in range(-2, bench.runs):
            for name in times:
                base = trial.make(Path(folder) / f"{index}-{name.replace(' ', '-')}", SCRIPT)
                script = str(base / "code" / "train.py")
                command = {
                    "bare": [str(bench.python), script],
                    "their bare": [str(bench.theirs / "python"), script],
                    "ours": bench.train,
                    "theirs": bench.their_train,
                }[name]
                seconds = first_line(command, base)
                if index >= 0:  # the first two rounds fill the caches
                    times[name].append(seconds)
    return [judge(times)]


def judge(times: dict[str, list[float]]) -> Figure:
    median = {name: statistics.median(values) for name, values in times.items()}
    bars = {"train": "ours", "sagemaker-training's train": "theirs", "python script.py": "bare"}
    ours, theirs = median["ours"] - median["bare"], median["theirs"] - median["their bare"]
    share, times_bare = ours / theirs, median["ours"] / median["bare"]
    return Figure(
        "`train` to the first line of user output, over bare `python script.py`",
        "≤ 1/4 of `sagemaker-training`'s overhead",
        f"{milliseconds(median['ours'])}: 1/{theirs / ours:.1f} of theirs ({milliseconds(median['theirs'])}), "
        f"{times_bare:.1f} × bare ({milliseconds(median['bare'])})",
        share <= 1 / 4,
        {name: round(value, 5) for name, value in median.items()},
        {label: in_milliseconds(times[name]) for label, name in bars.items()},
    )
