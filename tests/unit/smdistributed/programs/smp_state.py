"""Models that keep state, in two parts and in one: what a module elsewhere has is the owner's, or refused by name."""

import copy

import smdistributed.modelparallel.torch as smp
import torch
from another import forget, together
from ending import error_of, leave
from torch import nn

M = 4
torch.set_default_dtype(torch.float64)
torch.set_num_threads(1)
OPTIONS = {"microbatches": M, "partitions": 2, "auto_partition": False, "default_partition": 0}


class Part(nn.Module):
    """What is on the other rank."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.norm = nn.BatchNorm1d(4)
        self.scale, self.calls, self.log = 1.0, 0, []
        self.register_buffer("seen", torch.zeros(4))

    def forward(self, x):
        self.calls += 1
        self.log.append(float(x.detach().sum()))
        self.seen += x.detach().mean(0)
        return torch.tanh(self.linear(x)) * self.scale

    def get_extra_state(self):
        return {"calls": self.calls}

    def set_extra_state(self, state):
        pass


class Quiet(nn.Module):
    """The same without state that forward passes change."""

    def __init__(self):
        super().__init__()
        self.linear, self.norm = nn.Linear(4, 4), nn.BatchNorm1d(4)
        self.scale, self.log = 1.0, []
        self.register_buffer("seen", torch.ones(4))

    def forward(self, x):
        return torch.tanh(self.linear(x)) * self.scale


class Net(nn.Module):
    def __init__(self, run, part=Part):
        super().__init__()
        self.run = run
        self.first, self.block, self.last = nn.Linear(4, 4), part(), nn.Linear(4, 1)
        self.register_buffer("own", torch.zeros(4))

    def forward(self, x):
        return self.last(self.run(self, torch.tanh(self.first(x))))


def plain(self, h):
    return self.block(h)


def sets(self, h):
    self.block.scale = float(h.detach().sum())
    return self.block(h)


def sets_one(self, h):
    self.block.scale = 0.5
    return self.block(h)


def alternates(self, h):
    self.turn = not getattr(self, "turn", False)
    self.block.scale = 0.5 if self.turn else 2.0
    return self.block(h)


def counts(self, h):
    return self.block(h) * self.block.calls + sum(self.block.log)


def reads(self, h):
    return self.block(h) * (1 + self.block.seen.sum())


def spans(self, h):
    self.own += h.detach().mean(0)
    return self.block(h) + self.own * 0.1


def weights(self, h):
    w = self.block.linear.weight
    bare = self.block(h) + h @ w.T * 0.1 + h @ w.mT * w.data.sum() + w.detach().norm() + w.double().sum()
    return (bare + w.to(torch.float64).sum() + w.type(torch.float64).mean() + w.clone().T[0, 0] + w[0, 0]) * 0.01


def twice(self, h):
    return self.block.norm(self.block(h)) + self.block.norm(self.block(h) * 2)


def steers(self, h):
    h = self.block(h)
    return h if self.block.calls % 2 else -h


def momentum(self, h):
    with torch.no_grad():
        self.block.linear.weight.mul_(0.9)
    return self.block(h)


def appends(self, h):
    self.block.log.append(1.0)
    return self.block(h)


def replaces(self, h):
    self.block.linear.weight = nn.Parameter(torch.ones(4, 4))
    return self.block(h)


EXACT = {
    "plain": (plain, Quiet), "sets": (sets, Part), "counts": (counts, Part), "reads": (reads, Part),
    "spans": (spans, Quiet), "weights": (weights, Quiet), "twice": (twice, Part), "steers": (steers, Part),
    "sets quietly": (sets, Quiet), "sets one": (sets_one, Quiet), "alternates": (alternates, Quiet),
}  # fmt: skip
REFUSED = {"momentum": momentum, "list": appends, "parameter": replaces}
"""Other changes are tried by ``smp_guard.py`` and ``smp_in_place.py``."""


def fresh(run, part):
    """A model in two parts, and the same in one."""
    forget()
    torch.manual_seed(5)
    net = Net(run, part)
    whole = copy.deepcopy(net)
    smp.set_partition(net.block, 1)
    optimizer = smp.DistributedOptimizer(torch.optim.SGD(net.parameters(), 0.05))
    return together(smp.DistributedModel(net)), whole, optimizer


@smp.step
def train(model, x, extra):
    loss = model(x).pow(2).mean()
    if extra:
        loss = loss + sum(p.pow(2).sum() for p in model.module.block.linear.parameters()) * 0.1
    model.backward(loss)
    return loss


@smp.step
def before(model, x):
    """Uses a weight before the model is called for the first time."""
    penalty = model.module.block.linear.weight.pow(2).sum()
    loss = model(x).pow(2).mean() + penalty
    model.backward(loss)
    return loss


def batch(step):
    return torch.randn(8, 4, generator=torch.Generator().manual_seed(step))


def exact(run, part, steps=4):
    """The largest difference of weights, buffers and losses."""
    model, whole, optimizer = fresh(run, part)
    plain = torch.optim.SGD(whole.parameters(), 0.05)
    worst = 0.0
    for number in range(steps):
        optimizer.zero_grad()
        losses = train(model, batch(number), run is weights).outputs
        optimizer.step()
        plain.zero_grad()
        for index, x in enumerate(batch(number).chunk(M)):
            loss = whole(x).pow(2).mean()
            if run is weights:
                loss = loss + sum(p.pow(2).sum() for p in whole.block.linear.parameters()) * 0.1
            (loss / M).backward()
            worst = max(worst, abs(losses[index].item() - loss.item()))
        plain.step()
    found = model.state_dict()
    for name, value in whole.state_dict().items():
        if isinstance(value, torch.Tensor):
            worst = max(worst, (found[name] - value).abs().max().item() if value.numel() else 0.0)
        else:
            assert found[name] == value, (name, found[name], value)
    if part is Part:  # behind the steps, on every rank
        assert model.module.block.calls == whole.block.calls and model.module.block.log == whole.block.log
        assert model.module.block.get_extra_state() == whole.block.get_extra_state()
    return worst


said = {"exact": {}, "refused": {}, "outside": {}}
for world in ({}, {"skip_tracing": True, "pipeline": "simple"}):
    smp.state._world = None
    smp.init({**OPTIONS, **world})
    for name, (run, part) in EXACT.items():
        said["exact"][f"{name} {world}"] = exact(run, part)
    model, whole, _ = fresh(plain, Quiet)
    before(model, batch(0))
    for x in batch(0).chunk(M):
        ((whole(x).pow(2).mean() + whole.block.linear.weight.pow(2).sum()) / M).backward()
    expected = dict(whole.named_parameters())
    said["exact"][f"before {world}"] = max(
        (each.grad - expected[name].grad).abs().max().item()
        for name, each in model.local_named_parameters()
        if each.grad is not None or expected[name].grad is not None
    )
    for name, run in REFUSED.items():
        model, _, _ = fresh(run, Quiet)
        said["refused"][f"{name} {world}"] = error_of(train, model, batch(0), False)

model, _, _ = fresh(plain, Quiet)
train(model, batch(0), False)
block = model.module.block
if smp.rank() == 0:
    outside = {
        "norm": lambda: block.linear.weight.data.norm(), "copy": lambda: copy.deepcopy(model.module),
        "buffer": lambda: block.seen + 1, "state": lambda: block.state_dict(),
        "set": lambda: setattr(block.linear.weight, "data", torch.ones(4, 4)),
    }  # fmt: skip
    said["outside"] = {name: error_of(call) for name, call in outside.items()}
    assert "rank 1" in repr(block.linear.weight) and block.linear.weight.shape == (4, 4)
smp.barrier()
if smp.rank() == 0:
    block.scale = 3.0
said["compared"] = error_of(train, model, batch(1), False)
leave(**said)
