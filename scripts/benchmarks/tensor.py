"""A step of a model whose tensors ranks share, beside DTensor by hand, and what a rank keeps in memory by degree."""

from __future__ import annotations

import json

from benchmarks import ranks, trial
from benchmarks.figure import Figure, milliseconds
from benchmarks.peak import LINEAR, figure, peak

ROUNDS = 20
MOST = 1.05
"""How much longer a step may take than one of the same layers, parallelized by hand."""
DEGREES = {2: 0.65, 4: 0.42}
"""By tensor-parallel degree: the share of one process's memory that a rank may need."""

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

"""


def measure(bench: trial.Bench) -> list[Figure]:
    one, *rest = (
        peak(bench, LINEAR, degree, {"tensor_parallel_degree": degree, "prescaled_batch": True})
        for degree in (1, *DEGREES)
    )
    name = "a rank's memory in a step with Adam, tensors shared by {} ranks, of that of one process"
    found = (figure(name.format(degree), most, one, DEGREES[degree]) for degree, most in zip(DEGREES, rest))
    return [step(bench), *found]


def step(bench: trial.Bench) -> Figure:
    """By the fastest step of each: whatever else the machine does can only make a step longer."""
    parameters = {"tensor_parallel_degree": 2, "prescaled_batch": True, "optimize": "speed", "ddp": True}
    settings = json.dumps([ROUNDS, 512, 8, 128, 4])
    times = ranks.run(bench, STEP + ranks.TURNS, 2, settings, SM_HP_MP_PARAMETERS=json.dumps(parameters))
    ours, torchs = min(times["smp"]), min(times["torch"])
    return Figure(
        "a step of four transformer layers whose tensors two ranks share, to the same with DTensor by hand",
        f"≤ {MOST:.2f}",
        f"{ours / torchs:.3f} ({milliseconds(ours)} to {milliseconds(torchs)})",
        ours / torchs <= MOST,
        {"ratio": round(ours / torchs, 4), "smp": ours, "torch": torchs, "rounds": ROUNDS},
    )
