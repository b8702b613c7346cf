"""What a rank keeps in memory while a model of smdistributed trains."""

from __future__ import annotations

import json
from typing import Any

from benchmarks import ranks, trial
from benchmarks.figure import Figure

MIB = 1 << 20

BEFORE = """
import gc, json, sys
import smdistributed.modelparallel.torch as smp
import torch
from torch import nn

torch.set_num_threads(1)
smp.init()

def kept(name):
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) * 1024 for line in file if line.startswith(name + ":"))

def count_from_here():
    gc.collect()
    with open("/proc/self/clear_refs", "w") as file:
        file.write("5")

@smp.step
def train_step(model, data):
    loss = model(data).square().mean()
    model.backward(loss)
    return loss

small = nn.Linear(8, 8)  # loads what torch loads with the first backward pass and the first optimizer
small(torch.randn(8, 8)).sum().backward()
torch.optim.AdamW(small.parameters(), foreach=False).step()
"""
"""How a program begins. It measures ``before``, makes a model, and trains it; ``count_from_here`` forgets the peak."""

AFTER = """
peaks = smp.allgather(kept("VmHWM") - before, smp.WORLD)
if smp.rank() == 0:
    print(json.dumps(peaks), flush=True)
smp.barrier()
"""

LINEAR = (
    BEFORE
    + """
data = torch.randn(8, 1536)
before = kept("VmRSS")
layer = smp.nn.DistributedLinear if smp.tp_size() > 1 else nn.Linear
model = smp.DistributedModel(nn.Sequential(*(layer(1536, 1536) for _ in range(12))))
optimizer = smp.DistributedOptimizer(torch.optim.Adam(model.parameters(), foreach=False))
for index in range(3):
    optimizer.zero_grad()
    train_step(model, data)
    optimizer.step()
    if index == 0:  # divided, with all of the optimizer's state
        count_from_here()
"""
    + AFTER
)
"""Twelve layers, whose tensors ranks share where there is tensor parallelism, and Adam."""


def peak(bench: trial.Bench, text: str, count: int, parameters: dict[str, Any], *words: str, **more: str) -> int:
    """The most that any of ``count`` ranks keeps in memory, in bytes, beyond what it had before it made the model.

    ``text`` is the program, ``parameters`` are those of the library, ``words`` the program's arguments, ``more`` its
    variables.
    """
    given = json.dumps({"ddp": True, **parameters})
    peaks: list[int] = ranks.run(bench, text, count, *words, SM_HP_MP_PARAMETERS=given, **more)
    return max(peaks)


def figure(name: str, found: int, other: int, most: float) -> Figure:
    """The share of ``other`` that ``found`` is, both in bytes, and ``most`` of it is the goal."""
    share = found / other
    return Figure(
        name, f"≤ {most:.0%}", f"{share:.0%} ({found / MIB:.0f} of {other / MIB:.0f} MiB)", share <= most,
        {"share": round(share, 4), "peak": found, "other": other},
    )  # fmt: skip
