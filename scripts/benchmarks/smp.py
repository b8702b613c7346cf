"""How much of a pipeline's time is work, beside torch's own schedule, and what a rank keeps in memory."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import NamedTuple

from benchmarks import ranks, trial
from benchmarks.figure import Figure, milliseconds
from benchmarks.peak import LINEAR, figure, peak

LAYERS = 2  # of each rank
FORWARD, BACKWARD = 0.010, 0.020  # seconds that a layer takes
ROUNDS = 5


class Pipeline(NamedTuple):
    """``goal`` is the least share of the bound (M + P - 1 turns of a rank's layers) that a step has to reach."""

    partitions: int
    microbatches: int
    goal: float


PIPELINES = (
    Pipeline(2, 4, 0.85), Pipeline(2, 8, 0.90), Pipeline(2, 16, 0.90),
    Pipeline(4, 4, 0.85), Pipeline(4, 8, 0.90), Pipeline(4, 16, 0.90),
)  # fmt: skip
DEGREES = {2: 0.65, 4: 0.40}
"""By pipeline degree: the share of one process's memory that a rank may need."""

# One job: steps of ours and of torch's take turns. Layers sleep, so that busy processors disturb neither much.
EFFICIENCY = """
import json, sys, time
import smdistributed.modelparallel.torch as smp
import torch
from torch import nn
from torch.distributed.pipelining import PipelineStage, Schedule1F1B

torch.set_num_threads(1)
smp.init()
layers, forward_time, backward_time, rounds = json.loads(sys.argv[1])
rank, partitions, microbatches = smp.rank(), smp.size(), smp.state.cfg.microbatches

class Sleep(torch.autograd.Function):
    @staticmethod
    def forward(context, data):
        time.sleep(forward_time)
        return data.clone()

    @staticmethod
    def backward(context, gradient):
        time.sleep(backward_time)
        return gradient.clone()

class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(32, 32)

    def forward(self, data):
        return Sleep.apply(self.linear(data))

def network(count):
    return nn.Sequential(*(Layer() for _ in range(count)))

def loss_of(output, target):
    return nn.functional.mse_loss(output, target)

@smp.step
def train_step(model, data, target):
    loss = loss_of(model(data), target)
    model.backward(loss)
    return loss

data, target = torch.randn(2 * microbatches, 32), torch.randn(2 * microbatches, 32)
model = smp.DistributedModel(network(layers * partitions))
stage = PipelineStage(network(layers), rank, partitions, torch.device("cpu"))
schedule = Schedule1F1B(stage, microbatches, loss_fn=loss_of)

def ours():
    train_step(model, data, target)

def torchs():
    if rank == 0:
        schedule.step(data)
    elif rank == partitions - 1:
        schedule.step(target=target)
    else:
        schedule.step()

"""


def measure(bench: trial.Bench) -> list[Figure]:
    settings = json.dumps([LAYERS, FORWARD, BACKWARD, ROUNDS])
    figures = []
    for pipeline in PIPELINES:
        parameters = json.dumps({"partitions": pipeline.partitions, "microbatches": pipeline.microbatches, "ddp": True})
        times = ranks.run(
            bench, EFFICIENCY + ranks.TURNS, pipeline.partitions, settings, SM_HP_MP_PARAMETERS=parameters
        )
        figures.append(judge(pipeline, times))
    one, *rest = (peak(bench, LINEAR, partitions, {"partitions": partitions}) for partitions in (1, *DEGREES))
    name = "a rank's memory in a step with Adam, {} partitions, of that of one process"
    found = (figure(name.format(partitions), most, one, DEGREES[partitions]) for partitions, most in zip(DEGREES, rest))
    return [*figures, *found]


def judge(pipeline: Pipeline, times: Mapping[str, list[float]]) -> Figure:
    """By the fastest step of each: whatever else the machine does can only make a step longer."""
    turns = pipeline.microbatches + pipeline.partitions - 1
    bound = turns * LAYERS * (FORWARD + BACKWARD)
    ours, torchs = min(times["smp"]), min(times["torch"])
    return Figure(
        f"a step of modelparallel, {pipeline.partitions} partitions, {pipeline.microbatches} microbatches, "
        f"of the bound ({milliseconds(bound)}); torch's 1F1B in the same run",
        f"≥ {pipeline.goal:.0%}",
        f"{bound / ours:.1%} ({milliseconds(ours)}); torch {bound / torchs:.1%}",
        bound / ours >= pipeline.goal,
        {"efficiency": round(bound / ours, 4), "torch": round(bound / torchs, 4), "bound": bound, "rounds": ROUNDS},
    )
