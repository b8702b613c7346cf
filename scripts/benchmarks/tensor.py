"""A step of a model whose tensors ranks share, beside DTensor by hand, and what a rank keeps in memory by degree."""

from __future__ import annotations

import json

from benchmarks import ranks, trial
from benchmarks.figure import Figure, milliseconds

ROUNDS = 20
MOST = 1.05
"""How much longer a step may take than one of the same layers, parallelized by hand."""
DEGREES = {2: 0.65, 4: 0.42}
"""By tensor-parallel degree: the share of one process's memory that a rank may need."""
MIB = 1 << 20

# One job: steps of ours and of torch's take turns. Both share layers as Megatron-LM does, of a batch that both ranks
# have.
STEP = """
import json, sys, time
import smdistributed.modelparallel.torch as smp
import torch
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

torch.set_num_threads(1)
smp.init()
rounds, width, heads, length, count = json.loads(sys.argv[1])

class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.query, self.key, self.value, self.dense = (nn.Linear(width, width) for _ in range(4))
        self.layernorm = nn.LayerNorm(width)

    def forward(self, hidden):
        query, key, value = (
            each(hidden).unflatten(-1, (-1, width // heads)).transpose(1, 2)
            for each in (self.query, self.key, self.value)
        )
        context = nn.functional.scaled_dot_product_attention(query, key, value).transpose(1, 2).flatten(2)
        return self.layernorm(self.dense(context) + hidden)

class Output(nn.Module):
    def __init__(self):
        super().__init__()
        self.dense1, self.dense2 = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.layernorm = nn.LayerNorm(width)

    def forward(self, hidden):
        return self.layernorm(self.dense2(nn.functional.gelu(self.dense1(hidden))) + hidden)

mesh = DeviceMesh.from_group(smp.get_tp_process_group(), "cpu")
plan = {"0.query": ColwiseParallel(), "0.key": ColwiseParallel(), "0.value": ColwiseParallel(),
        "0.dense": RowwiseParallel(), "1.dense1": ColwiseParallel(), "1.dense2": RowwiseParallel()}
byhand = nn.Sequential(*(parallelize_module(nn.Sequential(Attention(), Output()), mesh, plan) for _ in range(count)))
model = smp.DistributedModel(smp.nn.DistributedTransformer(
    count, num_attention_heads=heads, hidden_size=width, intermediate_size=4 * width, attention_dropout_prob=0.0,
    hidden_dropout_prob=0.0))
torch.manual_seed(0)
data = torch.randn(4, length, width)

@smp.step
def train_step(model, data):
    loss = model((data, None))[0].square().mean()
    model.backward(loss)
    return loss

def ours():
    model.zero_grad()
    train_step(model, data)

def torchs():
    byhand.zero_grad()
    byhand(data).square().mean().backward()

times = {"smp": [], "torch": []}
for index in range(-2, rounds):
    for name, step in (("smp", ours), ("torch", torchs)):
        smp.barrier()
        began = time.perf_counter()
        step()
        smp.barrier()
        if index >= 0:
            times[name].append(time.perf_counter() - began)
if smp.rank() == 0:
    print(json.dumps(times), flush=True)
smp.barrier()
"""

# Peak memory of one training step with Adam, beyond what the process had before it built the model.
MEMORY = """
import gc, json
import smdistributed.modelparallel.torch as smp
import torch
from torch import nn

torch.set_num_threads(1)
smp.init()

def kept(name):
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) * 1024 for line in file if line.startswith(name + ":"))

@smp.step
def train_step(model, data):
    loss = model(data).square().mean()
    model.backward(loss)
    return loss

data = torch.randn(8, 1536)
small = nn.Linear(8, 8)  # loads what torch loads with the first backward pass and the first optimizer
small(torch.randn(8, 8)).sum().backward()
torch.optim.Adam(small.parameters(), foreach=False).step()
before = kept("VmRSS")
model = smp.DistributedModel(nn.Sequential(*(smp.nn.DistributedLinear(1536, 1536) for _ in range(12))))
optimizer = smp.DistributedOptimizer(torch.optim.Adam(model.parameters(), foreach=False))
for index in range(3):
    optimizer.zero_grad()
    train_step(model, data)
    optimizer.step()
    if index == 0:  # with all of the optimizer's state: from here on the peak counts
        gc.collect()
        with open("/proc/self/clear_refs", "w") as file:
            file.write("5")
peaks = smp.allgather(kept("VmHWM") - before, smp.WORLD)
if smp.rank() == 0:
    print(json.dumps(peaks), flush=True)
smp.barrier()
"""


def measure(bench: trial.Bench) -> list[Figure]:
    one, *rest = (peak(bench, degree) for degree in (1, *DEGREES))
    return [step(bench), *(memory(degree, most, one) for degree, most in zip(DEGREES, rest))]


def step(bench: trial.Bench) -> Figure:
    """By the fastest step of each: whatever else the machine does can only make a step longer."""
    parameters = {"tensor_parallel_degree": 2, "prescaled_batch": True, "optimize": "speed", "ddp": True}
    settings = json.dumps([ROUNDS, 512, 8, 128, 4])
    times = ranks.run(bench, STEP, 2, settings, SM_HP_MP_PARAMETERS=json.dumps(parameters))
    ours, torchs = min(times["smp"]), min(times["torch"])
    return Figure(
        "a step of four transformer layers whose tensors two ranks share, to the same with DTensor by hand",
        f"≤ {MOST:.2f}",
        f"{ours / torchs:.3f} ({milliseconds(ours)} to {milliseconds(torchs)})",
        ours / torchs <= MOST,
        {"ratio": round(ours / torchs, 4), "smp": ours, "torch": torchs, "rounds": ROUNDS},
    )


def peak(bench: trial.Bench, degree: int) -> int:
    """The most that any rank keeps in memory, in bytes."""
    parameters = json.dumps({"tensor_parallel_degree": degree, "prescaled_batch": True, "ddp": True})
    peaks: list[int] = ranks.run(bench, MEMORY, degree, SM_HP_MP_PARAMETERS=parameters)
    return max(peaks)


def memory(degree: int, most: int, one: int) -> Figure:
    share = most / one
    return Figure(
        f"a rank's memory in a step with Adam, tensors shared by {degree} ranks, of that of one process",
        f"≤ {DEGREES[degree]:.0%}",
        f"{share:.0%} ({most / MIB:.0f} of {one / MIB:.0f} MiB)",
        share <= DEGREES[degree],
        {"share": round(share, 4), "peak": most, "one": one},
    )
