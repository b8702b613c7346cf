"""Samples a second of a DistributedDataParallel training under musterpoint's launchers, over plain torchrun."""

from __future__ import annotations

import json
import statistics
import subprocess
import tempfile
from pathlib import Path

from benchmarks import trial
from benchmarks.figure import Figure

GOAL = 0.99
RANKS, QUICK_RANKS = (1, 2, 4), (1, 2)
LIMIT = 300.0
PROGRAM = """\
import json, os, time
import torch
import torch.distributed as dist
from torch import nn

torch.set_num_threads(1)
dist.init_process_group("gloo")
model = nn.parallel.DistributedDataParallel(nn.Sequential(nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 10)))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
data, target = torch.randn(64, 256), torch.randint(0, 10, (64,))

def steps(number):
    for _ in range(number):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(data), target).backward()
        optimizer.step()
    dist.barrier()

steps(20)
began = time.perf_counter()
steps(int(os.environ["BENCH_STEPS"]))
seconds = time.perf_counter() - began
if dist.get_rank() == 0:
    with open(os.environ["BENCH_FILE"], "w") as file:
        json.dump(64 * dist.get_world_size() * int(os.environ["BENCH_STEPS"]) / seconds, file)
dist.barrier()
dist.destroy_process_group()
"""


def measure(bench: trial.Bench) -> list[Figure]:
    return [_of(bench, ranks) for ranks in (QUICK_RANKS if bench.quick else RANKS)]


def _of(bench: trial.Bench, ranks: int) -> Figure:
    python = str(bench.python)
    launch = [python, "-m", "musterpoint", "launch", "--slots", str(ranks), "--launcher"]
    commands = {
        "musterpoint (ranks)": [*launch, "ranks"],
        "musterpoint (torchrun)": [*launch, "torchrun"],
        "torchrun": [python, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}"],
    }
    rates: dict[str, list[float]] = {name: [] for name in commands}
    for index in range(3 if bench.quick else 5):
        for name in [*commands][:: 1 if index % 2 else -1]:
            rates[name].append(_one(commands[name], "300" if bench.quick else "1500"))
    ratios = {
        name: [mine / plain for mine, plain in zip(values, rates["torchrun"], strict=True)]
        for name, values in rates.items()
        if name != "torchrun"
    }
    told = "; ".join(
        f"{name} {statistics.median(each):.3f} ({min(each):.3f} to {max(each):.3f})" for name, each in ratios.items()
    )
    return Figure(
        f"samples a second, {ranks} rank{'s' * (ranks > 1)}, over plain torchrun's",
        f"≥ {GOAL}",
        f"{told}; torchrun {statistics.median(rates['torchrun']):,.0f} a second",
        all(statistics.median(each) >= GOAL for each in ratios.values()),
        {"rates": rates, "ratios": ratios},
        {name: [round(value, 1) for value in values] for name, values in rates.items()},
        "samples/s",
    )


def _one(command: list[str], steps: str) -> float:
    with tempfile.TemporaryDirectory(prefix="bench-") as name:
        program, found = Path(name, "train.py"), Path(name, "rate")
        program.write_text(PROGRAM)
        env = trial.environment(BENCH_STEPS=steps, BENCH_FILE=str(found), OMP_NUM_THREADS="1")
        done = subprocess.run(
            [*command, str(program)], cwd=name, env=env, stdin=subprocess.DEVNULL, capture_output=True, timeout=LIMIT,
            check=False,
        )  # fmt: skip
        if done.returncode or not found.exists():
            raise SystemExit(
                f"{command[1:4]} ended with {done.returncode}: {done.stderr.decode(errors='replace')[-400:]}"
            )
        rate: float = json.loads(found.read_text())
        return rate
