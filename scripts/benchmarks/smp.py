"""A pipeline's step beside torch's own schedule, what the guard of state elsewhere costs, and a rank's memory."""

from __future__ import annotations

import json
import statistics
from collections.abc import Mapping
from typing import NamedTuple

from benchmarks import ranks, trial
from benchmarks.figure import Figure, milliseconds
from benchmarks.peak import LINEAR, figure, peak

LAYERS = 2  # of each rank
FORWARD, BACKWARD = 0.010, 0.020  # seconds that a layer takes
ROUNDS = 9


class Pipeline(NamedTuple):
    """Its bound are M + P - 1 turns of a rank's layers."""

    partitions: int
    microbatches: int


PIPELINES = (Pipeline(2, 4), Pipeline(2, 8), Pipeline(2, 16), Pipeline(4, 4), Pipeline(4, 8), Pipeline(4, 16))
GOAL = 0.95
"""The least that torch's time may be of ours."""
GUARD_ROUNDS = 200
GUARD = 1.01
"""The most that a step's processor time may be of that without the guard, after the first steps."""
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

# One job: steps with the guard of state on other ranks, and without it, take turns. Its cost is processor time.
GUARDED = """
import json, sys, time
import smdistributed.modelparallel.torch as smp
import torch
from smdistributed.modelparallel.torch import aliases
from torch import nn

torch.set_num_threads(1)
smp.init()

class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear, self.norm, self.scale = nn.Linear(256, 256), nn.LayerNorm(256), 0.5

    def forward(self, data):
        return data + torch.tanh(self.linear(self.norm(data))) * self.scale

@smp.step
def train_step(model, data):
    loss = model(data).square().mean()
    model.backward(loss)
    return loss

model = smp.DistributedModel(nn.Sequential(*(Layer() for _ in range(16))))
data = torch.randn(512, 256)
for _ in range(4):  # the first ones watch everything
    train_step(model, data)
routing = model._routing
guarded = [(module, type(module)) for module in routing.guard.others.values()]
off = {
    routing.guard: {name: lambda *args: None for name in ("begin", "ran", "end")},
    routing._hooks: {name: lambda: None for name in ("begin", "end")},
    routing._slots: {"begin": lambda *_: None, "replaced": lambda name: {}},
    aliases: {"found": lambda results, arguments: ()},
}
on = {each: {name: getattr(each, name) for name in names} for each, names in off.items()}

def switch(is_on):
    for module, kind in guarded:
        module.__class__ = kind if is_on else kind.__bases__[0]
    for each, functions in (on if is_on else off).items():
        vars(each).update(functions)

times = {"with": [], "without": []}
for index in range(-2, int(sys.argv[1])):
    for name in sorted(times, reverse=index % 2 == 0):
        switch(name == "with")
        smp.barrier()
        began = time.process_time()
        train_step(model, data)
        spent = sum(smp.allgather(time.process_time() - began, smp.WORLD))
        if index >= 0:
            times[name].append(spent)
if smp.rank() == 0:
    print(json.dumps(times), flush=True)
smp.barrier()
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
    parameters = json.dumps({"partitions": 2, "microbatches": 4, "ddp": True})
    figures.append(judge_guard(ranks.run(bench, GUARDED, 2, str(GUARD_ROUNDS), SM_HP_MP_PARAMETERS=parameters)))
    one, *rest = (peak(bench, LINEAR, partitions, {"partitions": partitions}) for partitions in (1, *DEGREES))
    name = "a rank's memory in a step with Adam, {} partitions, of that of one process"
    found = (figure(name.format(partitions), most, one, DEGREES[partitions]) for partitions, most in zip(DEGREES, rest))
    return [*figures, *found]


def judge(pipeline: Pipeline, times: Mapping[str, list[float]]) -> Figure:
    """By pairs of steps that followed each other: whatever else the machine does is about the same for both."""
    turns = pipeline.microbatches + pipeline.partitions - 1
    bound = turns * LAYERS * (FORWARD + BACKWARD)
    ratios = [torchs / ours for ours, torchs in zip(times["smp"], times["torch"])]
    low, ratio, high = statistics.quantiles(ratios, n=4)
    ours, torchs = min(times["smp"]), min(times["torch"])
    return Figure(
        f"torch's 1F1B beside a step of modelparallel, {pipeline.partitions} partitions, {pipeline.microbatches} "
        f"microbatches (bound {milliseconds(bound)})",
        f"≥ {GOAL:.0%}",
        f"{ratio:.1%} (half of the pairs {low:.1%} to {high:.1%}); fastest {milliseconds(ours)}, "
        f"{milliseconds(torchs)}: {bound / ours:.1%} and {bound / torchs:.1%} of the bound",
        ratio >= GOAL,
        {
            "ratio": round(ratio, 4),
            "efficiency": round(bound / ours, 4),
            "torch": round(bound / torchs, 4),
            "bound": bound,
            "rounds": ROUNDS,
        },
    )


def judge_guard(times: Mapping[str, list[float]]) -> Figure:
    """By the lower quartiles: what else the machine does costs caches, and can only make a step longer."""
    guarded, bare = (statistics.quantiles(times[name], n=4)[0] for name in ("with", "without"))
    return Figure(
        "processor time of a step of modelparallel with the guard of state on other ranks, of that without",
        f"≤ {GUARD:.0%}",
        f"{guarded / bare:.1%} ({milliseconds(guarded)}, {milliseconds(bare)})",
        guarded / bare <= GUARD,
        {"ratio": round(guarded / bare, 4), "guarded": guarded, "bare": bare, "rounds": GUARD_ROUNDS},
    )
