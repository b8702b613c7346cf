"""Jobs of many simulated hosts, with what the leader's processor needs measured on this machine."""

from __future__ import annotations

import gc
import importlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[2]
COSTS = ROOT / "scripts" / "benchmarks" / "leader_costs.py"
ENDS = ("fails", "stops", "lost", "restarts")


class Wanted(NamedTuple):
    """One simulated job. ``given``: conditions that differ from the usual ones."""

    hosts: int
    end: str
    given: dict[str, Any]


def crowd() -> Any:
    """The simulation itself, which the tests have."""
    if str(ROOT) not in sys.path:
        sys.path.insert(0, str(ROOT))
    return importlib.import_module("tests.unit.core.supervise.simulated_crowd")


def costs(python: str = sys.executable, times: int = 3) -> dict[str, float]:
    """Seconds of each thing that the leader's kernel and loop do: the least of a few measurements."""
    found = []
    for _ in range(times):
        environ = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
        done = subprocess.run([python, COSTS], stdout=subprocess.PIPE, env=environ, check=True, timeout=120)
        found.append(json.loads(done.stdout))
    return {name: min(each[name] for each in found) for name in found[0]}


def simulate(wanted: Wanted, prices: dict[str, float] | None) -> dict[str, Any]:
    """One job, in a process of its own; without ``prices`` they are fixed, and so are the results. Prices without a
    ``step`` of the leader's Python have it measured as it runs.
    """
    command = [sys.executable, str(ROOT / "scripts" / "simulate"), "--one", json.dumps([*wanted, prices])]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True)
    played: dict[str, Any] = json.loads(done.stdout)
    return played


def play(wanted: Wanted, prices: dict[str, float] | None) -> dict[str, Any]:
    """The same in this process."""
    found = crowd()
    given = found.Conditions(wanted.hosts, **wanted.given)
    price = found.Costs() if prices is None else found.Costs(**{"step": None, **prices})
    gc.disable()  # the leader shares its process with all hosts here, as no real one does
    played: dict[str, Any] = found.play_crowd(given, price, wanted.end)._asdict()
    return played
