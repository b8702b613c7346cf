"""``muster serve``: a job's way from the call to its end, a queue, lists of many jobs, a line's way to CloudWatch."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

from benchmarks import trial
from benchmarks.figure import Figure

ROOT = Path(__file__).resolve().parent.parent.parent


def measure(bench: trial.Bench) -> list[Figure]:
    setup = subprocess.run([ROOT / "scripts" / "setup", "test"], stdout=subprocess.PIPE, text=True, check=True)
    python = Path(setup.stdout.splitlines()[-1]) / "python"
    command = [python, Path(__file__).with_name("served.py")]
    done = subprocess.run(command, stdout=subprocess.PIPE, env=trial.environment(), check=True)
    return [Figure(**figure) for figure in json.loads(done.stdout)]
