"""What a rank keeps in memory where replicas share out the optimizer's state, beside torch's ZeroRedundancyOptimizer;
in half precision; and where activations are computed again."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from benchmarks import ranks, trial
from benchmarks.figure import Figure

MIB = 1 << 20
OF_ZERO = 1.05
"""How much more than with ZeroRedundancyOptimizer a rank may need."""

# Peak memory of a training step from the second on, beyond what the process had before it built the model.
MEMORY = """
import gc, json, sys
import smdistributed.modelparallel.torch as smp
import torch
from torch import nn
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel

torch.set_num_threads(1)
smp.init()
zero, strategy, width, layers, batch = json.loads(sys.argv[1])

def kept(name):
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) * 1024 for line in file if line.startswith(name + ":"))

@smp.step
def train_step(model, data):
    loss = model(data).square().mean()
    model.backward(loss)

data = torch.randn(batch, width)
small = nn.Linear(8, 8)  # loads what torch loads with the first backward pass and the first optimizer
small(torch.randn(8, 8)).sum().backward()
torch.optim.AdamW(small.parameters(), foreach=False).step()
before = kept("VmRSS")
net = nn.Sequential(*(nn.Sequential(nn.Linear(width, width), nn.GELU()) for _ in range(layers)))
if zero:
    model = DistributedDataParallel(net)
    optimizer = ZeroRedundancyOptimizer(model.parameters(), torch.optim.AdamW, foreach=False)
else:
    optimizer = smp.DistributedOptimizer(torch.optim.AdamW(net.parameters(), foreach=False))
    if strategy:
        smp.set_activation_checkpointing(net, strategy=strategy)
    model = smp.DistributedModel(net)
for index in range(4):
    optimizer.zero_grad()
    if zero:
        model(data).square().mean().backward()
    else:
        train_step(model, data)
    optimizer.step()
    if index == 1:  # all of the optimizer's state is there: from here on the peak counts
        gc.collect()
        with open("/proc/self/clear_refs", "w") as file:
            file.write("5")
peaks = smp.allgather(kept("VmHWM") - before, smp.WORLD)
if smp.rank() == 0:
    print(json.dumps(peaks), flush=True)
smp.barrier()
"""


class Net(NamedTuple):
    """The model and its batch; a few large parameters, or many activations."""

    width: int
    layers: int
    batch: int


LARGE = Net(1536, 8, 8)
DEEP = Net(256, 24, 8192)


def measure(bench: trial.Bench) -> list[Figure]:
    figures: list[Figure] = []
    whole = peak(bench, LARGE, 2)
    for replicas, share in ((2, 0.85), (4, 0.75)):
        shards = peak(bench, LARGE, replicas, shard_optimizer_state=True)
        zero = peak(bench, LARGE, replicas, zero=True)
        name = f"a rank's memory, {replicas} replicas that share out AdamW's state"
        figures += [
            figure(f"{name}, of that without", shards, whole, share),
            figure(f"{name}, of that with ZeroRedundancyOptimizer", shards, zero, OF_ZERO),
        ]
    half = peak(bench, LARGE, 2, shard_optimizer_state=True, bf16=True)
    figures.append(figure("the same in bf16, 2 replicas, of float32 without sharing", half, whole, 0.7))
    kept = peak(bench, DEEP, 1)
    for strategy, share in (("each", 0.75), ("group_2", 0.6), ("group_6", 0.6)):
        again = peak(bench, DEEP, 1, strategy)
        figures.append(
            figure(f"memory with activations computed again, {strategy}, of that without", again, kept, share)
        )
    return figures


def peak(bench: trial.Bench, net: Net, count: int, strategy: str = "", zero: bool = False, **more: Any) -> int:
    """The most that any rank keeps in memory, in bytes."""
    parameters = json.dumps({"ddp": True, **more})
    settings = json.dumps([zero, strategy, *net])
    peaks: list[int] = ranks.run(bench, MEMORY, count, settings, SM_HP_MP_PARAMETERS=parameters)
    return max(peaks)


def figure(name: str, found: int, other: int, most: float) -> Figure:
    share = found / other
    return Figure(
        name, f"≤ {most:.0%}", f"{share:.0%} ({found / MIB:.0f} of {other / MIB:.0f} MiB)", share <= most,
        {"share": round(share, 4), "peak": found, "other": other},
    )  # fmt: skip
