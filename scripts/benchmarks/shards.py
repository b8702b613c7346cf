"""What a rank keeps in memory where replicas share out the optimizer's state, beside torch's ZeroRedundancyOptimizer;
in half precision; where the model is in shards; where activations are computed again; and while a model is made."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from benchmarks import trial
from benchmarks.figure import Figure
from benchmarks.peak import AFTER, BEFORE, figure, peak

OF_ZERO = 1.05
"""How much more than with ZeroRedundancyOptimizer a rank may need."""

THRESHOLD = str(64 << 10)
"""From this size on glibc returns memory to the system as soon as it is freed: what counts is what a rank needs."""

# From the second step on, when all of the optimizer's state is there, the peak counts.
PROGRAM = (
    BEFORE
    + """
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel

zero, strategy, width, layers, batch = json.loads(sys.argv[1])
data = torch.randn(batch, width)
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
    if index == 1:
        count_from_here()
"""
    + AFTER
)


MADE = (
    BEFORE
    + """
delays, = json.loads(sys.argv[1])
with smp.delay_param_initialization():
    nn.Linear(512, 512)
count_from_here()
before = kept("VmRSS")
with smp.delay_param_initialization(delays):
    net = nn.Sequential(*(nn.Linear(1536, 1536) for _ in range(24)))
model = smp.DistributedModel(net)

@smp.step
def look(model, data):
    return model(data)

with torch.no_grad():
    look(model, torch.randn(8, 1536))
"""
    + AFTER
)
"""A model of 24 large layers is made, and divided by its first step; the peak of all that."""


class Net(NamedTuple):
    """The model and its batch; a few large parameters, or many activations."""

    width: int
    layers: int
    batch: int


LARGE = Net(1536, 8, 8)
DEEP = Net(256, 24, 8192)


def measure(bench: trial.Bench) -> list[Figure]:
    figures: list[Figure] = []
    whole = memory(bench, LARGE, 2)
    for replicas, share in ((2, 0.85), (4, 0.80)):
        shards = memory(bench, LARGE, replicas, shard_optimizer_state=True)
        zero = memory(bench, LARGE, replicas, zero=True)
        name = f"a rank's memory, {replicas} replicas that share out AdamW's state"
        figures += [
            figure(f"{name}, of that without", shards, whole, share),
            figure(f"{name}, of that with ZeroRedundancyOptimizer", shards, zero, OF_ZERO),
        ]
    half = memory(bench, LARGE, 2, shard_optimizer_state=True, bf16=True)
    figures.append(figure("the same in bf16, 2 replicas, of float32 without sharing", half, whole, 0.85))
    for degree, share in ((2, 0.75), (4, 0.55)):
        parts = memory(bench, LARGE, degree, sharded_data_parallel_degree=degree)
        figures.append(figure(f"a rank's memory, model in {degree} shards, of that without", parts, whole, share))
    pipeline = {"partitions": 4, "skip_tracing": True}
    at_once, delayed = (
        peak(bench, MADE, 4, pipeline, json.dumps([each]), MALLOC_MMAP_THRESHOLD_=THRESHOLD) for each in (False, True)
    )
    name = "memory while a model for 4 partitions is made, delayed, of that at once"
    figures.append(figure(name, delayed, at_once, 0.5))
    kept = memory(bench, DEEP, 1)
    for strategy, share in (("each", 0.65), ("group_2", 0.5), ("group_6", 0.45)):
        again = memory(bench, DEEP, 1, strategy)
        figures.append(
            figure(f"memory with activations computed again, {strategy}, of that without", again, kept, share)
        )
    return figures


def memory(bench: trial.Bench, net: Net, count: int, strategy: str = "", zero: bool = False, **parameters: Any) -> int:
    """The most that any rank keeps in memory, in bytes."""
    settings = json.dumps([zero, strategy, *net])
    return peak(bench, PROGRAM, count, parameters, settings, MALLOC_MMAP_THRESHOLD_=THRESHOLD)
