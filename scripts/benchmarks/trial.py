"""A one-host job in a folder of its own, and how `train` is started on it: ours, and sagemaker-training's."""

from __future__ import annotations

import json
import os
import subprocess
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

# These change results threefold, so every process of a benchmark gets them, whatever the caller's shell has: output is
# unbuffered, and compiled modules are kept (as in an image, where installing compiles them).
FIXED = {"PYTHONUNBUFFERED": "1", "PYTHONDONTWRITEBYTECODE": "", "PYTHONHASHSEED": "0"}
OURS_TO_DROP = ("MUSTER_", "SM_", "SAGEMAKER_", "TRAINING_JOB_", "PYTHON", "OMP_", "MASTER_", "CURRENT_HOST")

HOST = "localhost"  # sagemaker-training waits up to 15 minutes for its own name to resolve
LIMIT = 120.0


class Bench(NamedTuple):
    """What the benchmarks run.

    ours: the bin directory of this checkout's environment.
    theirs: that of sagemaker-training's.
    runs: how often a figure is taken.
    rows: the failures whose culprit is looked for; empty: all.
    lanes: how many of them run at the same time.
    kept: where what tools said is kept until all of them have run; None: nowhere.
    quick: less of everything, for a first look.
    """

    ours: Path
    theirs: Path
    runs: int
    rows: tuple[str, ...] = ()
    lanes: int = 2
    kept: Path | None = None
    quick: bool = False

    @property
    def python(self) -> Path:
        return self.ours / "python"

    @property
    def train(self) -> list[str]:
        return [str(self.ours / "train")]

    @property
    def their_train(self) -> list[str]:
        return [str(self.theirs / "train")]


def environment(**more: str) -> dict[str, str]:
    """The caller's environment without what belongs to a job or an interpreter, with what is fixed."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(OURS_TO_DROP)}
    return {**kept, **FIXED, **more}


def make(folder: Path, script: str, hyperparameters: Mapping[str, Any] | None = None) -> Path:
    """The base directory of a one-host job that runs ``script`` as train.py; the code lies in it."""
    base = folder / "ml"
    code = base / "code"
    for path in (base / "input" / "config", base / "input" / "data", base / "model", base / "output" / "data", code):
        path.mkdir(parents=True)
    (code / "train.py").write_text(script)
    words = {"sagemaker_program": "train.py", "sagemaker_submit_directory": str(code), **(hyperparameters or {})}
    files = {
        "hyperparameters.json": {name: json.dumps(value) for name, value in words.items()},
        "inputdataconfig.json": {},
        "resourceconfig.json": {"current_host": HOST, "hosts": [HOST], "network_interface_name": "lo"},
    }
    for name, value in files.items():
        (base / "input" / "config" / name).write_text(json.dumps(value))
    return base


def start(command: list[str], base: Path, stdout: int | None = subprocess.PIPE, **more: str) -> subprocess.Popen[bytes]:
    """Starts ``command`` on the job at ``base``; stderr goes to a file beside it, for when it fails."""
    env = environment(SAGEMAKER_BASE_DIR=str(base), **more)
    with (base.parent / "stderr").open("wb") as errors:
        return subprocess.Popen(command, stdout=stdout, stderr=errors, env=env, cwd="/", bufsize=0)


def until(condition: Any, process: subprocess.Popen[bytes], base: Path) -> None:
    """Waits until ``condition()``; ends the benchmark when the process ends first or LIMIT seconds pass."""
    end = time.monotonic() + LIMIT
    while not condition():
        if process.poll() is not None or time.monotonic() > end:
            words = (base.parent / "stderr").read_text(errors="replace")[-2000:]
            process.kill()
            raise SystemExit(f"bench: {process.args!r} ended with {process.returncode} or was too slow:\n{words}")
        time.sleep(0.01)


def finish(process: subprocess.Popen[bytes], base: Path, expected: int) -> float:
    """Waits for the end; returns the monotonic time of it. Another code than ``expected`` ends the benchmark."""
    guard = threading.Timer(LIMIT, process.kill)
    guard.start()
    code = process.wait()  # with a time limit it would look only every 50 ms
    ended = time.monotonic()
    guard.cancel()
    if code != expected:
        words = (base.parent / "stderr").read_text(errors="replace")[-2000:]
        raise SystemExit(f"bench: {process.args!r} ended with {code}, not {expected}:\n{words}")
    return ended
