"""Trains generated models in parts, and in one process for each replica; says how far they are apart.

The models come as a file of JSON, one a line; ``generated_models.py`` draws them.
"""

import copy
import gc
import json
import sys

import smdistributed.modelparallel.torch as smp
import torch
from ending import leave
from smdistributed.modelparallel.torch import absent
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

torch.set_default_dtype(torch.float64)
torch.set_num_threads(1)
WIDTH = 4


class Block(nn.Module):
    """``others``: the blocks before this one."""

    def __init__(self, others):
        super().__init__()
        self.linear = nn.Linear(WIDTH, WIDTH)

    def forward(self, x, others):
        return torch.tanh(self.linear(x))


class Norm(Block):
    def __init__(self, others):
        super().__init__(others)
        self.norm = nn.BatchNorm1d(WIDTH)

    def forward(self, x, others):
        return self.linear(self.norm(x))


class Inplace(Block):
    def forward(self, x, others):
        y = self.linear(x)
        y += x
        return y.relu_()


class Residual(Block):
    def __init__(self, others):
        super().__init__(others)
        self.inner = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.GELU(), nn.Linear(WIDTH, WIDTH))

    def forward(self, x, others):
        return x + self.inner(self.linear(x)) * 0.5


class Frozen(Block):
    def __init__(self, others):
        super().__init__(others)
        self.linear.requires_grad_(False)


class Checkpointed(Block):
    def forward(self, x, others):
        return checkpoint(super().forward, x, others, use_reentrant=False)


class Noted(Block):
    """A running mean."""

    def __init__(self, others):
        super().__init__(others)
        self.register_buffer("mean", torch.zeros(WIDTH))

    def forward(self, x, others):
        if self.training:
            self.mean.mul_(0.9).add_(x.detach().mean(0), alpha=0.1)
        return super().forward(x - self.mean, others)


class Counting(Block):
    def __init__(self, others):
        super().__init__(others)
        self.calls = 0

    def forward(self, x, others):
        self.calls += 1
        return super().forward(x, others) * (1 + self.calls % 3)


class Collecting(Block):
    def __init__(self, others):
        super().__init__(others)
        self.log = []

    def forward(self, x, others):
        self.log.append(float(x.detach().sum()))
        return super().forward(x, others) + len(self.log) * 0.01


class Keeping(Block):
    def forward(self, x, others):
        self.kept = super().forward(x, others)
        return self.kept * 2


class Borrowing(Block):
    """Computes with a weight of another block."""

    def forward(self, x, others):
        return super().forward(
            functional.linear(x, others[0].linear.weight.T if others else self.linear.weight), others
        )


class Shared(Block):
    """Has the weight of another block."""

    def __init__(self, others):
        super().__init__(others)
        if others:
            self.linear.weight = others[0].linear.weight


class Reading(Block):
    """Reads what another block keeps."""

    def forward(self, x, others):
        found = 0.0
        for each in others[:1]:
            found = getattr(each, "calls", 0) * 0.1 + sum(getattr(each, "log", ())) * 0.01
            if hasattr(each, "mean"):
                found = found + each.mean.sum()
        return super().forward(x, others) + found


class Setting(Block):
    """Sets an attribute of another block."""

    def forward(self, x, others):
        for each in others[:1]:
            each.calls = getattr(each, "calls", 0) + 2
        return super().forward(x, others)


class Branching(Block):
    def forward(self, x, others):
        return super().forward(x, others) if x.sum() > 0 else self.linear(x).sin()


class Twice(Block):
    def __init__(self, others):
        super().__init__(others)
        self.norm = nn.BatchNorm1d(WIDTH)

    def forward(self, x, others):
        x = self.norm(super().forward(x, others))
        return self.norm(super().forward(x, others))


class Watching(Block):
    """Calls the block before once more."""

    def forward(self, x, others):
        if others and not isinstance(others[0], Watching):
            x = x + others[0](x * 0.5, [])
        return super().forward(x, others)


class Structured(Block):
    def forward(self, x, others):
        pair = {"x": x, "more": [x.sin(), 3]}
        return super().forward(pair["x"], others) + pair["more"][0] * pair["more"][1]


class Extra(Block):
    def __init__(self, others):
        super().__init__(others)
        self.steps = 0

    def forward(self, x, others):
        self.steps += self.training
        return super().forward(x, others)

    def get_extra_state(self):
        return {"steps": self.steps}

    def set_extra_state(self, state):
        self.steps = state["steps"]


CLASSES = {each.__name__.lower(): each for each in Block.__subclasses__()}
CLASSES["linear"] = Block


class Net(nn.Module):
    def __init__(self, blocks):
        super().__init__()
        self.first, self.blocks = nn.Linear(3, WIDTH), nn.ModuleList()
        self.others = []
        for index, block in enumerate(blocks):
            chosen = [block["other"] % index] if index else []
            self.others.append(chosen)
            self.blocks.append(CLASSES[block["kind"]]([self.blocks[each] for each in chosen]))
        self.last = nn.Linear(WIDTH, 2)

    def forward(self, x):
        x = torch.tanh(self.first(x))
        for block, others in zip(self.blocks, self.others):
            x = block(x, [self.blocks[each] for each in others])
        return self.last(x)


def body(model, net, x, y, kind, backward):
    if kind == "adversarial":
        x = x.detach().requires_grad_()
        (direction,) = torch.autograd.grad(functional.cross_entropy(model(x), y), x)
        x = (x + 0.1 * direction).detach()
    output = model(x)
    loss = functional.cross_entropy(output, y)
    if kind == "penalty":
        loss = loss + 0.01 * sum(each.pow(2).sum() for each in net.blocks[-1].parameters())
    if kind == "two":
        backward(functional.cross_entropy(model(x * 2), y) * 0.5)
    if kind == "split":
        output.sum().mul(0.01).backward(retain_graph=True)
    backward(loss)
    return loss


@smp.step
def train(model, x, y, kind):
    return body(model, model.module, x, y, kind, model.backward)


@smp.step
def evaluate(model, x):
    return model(x)


def batch(spec, step, replica):
    generator = torch.Generator().manual_seed(spec["seed"] + 100 * step + replica)
    return torch.randn(8, 3, generator=generator), torch.randint(2, (8,), generator=generator)


def optimizer_of(spec, parameters):
    kind = getattr(torch.optim, spec["optimizer"])
    return kind(parameters, 0.02, **({"eps": 1e-2} if spec["optimizer"] == "Adam" else {}))


def alone(replicas, optimizer, spec, step, divided):
    """One step of all replicas, in this process; the losses of each."""
    count, losses = spec["world"]["microbatches"], []
    for net in replicas:
        for own, first in zip(net.buffers(), replicas[0].buffers()):
            own.data.copy_(first)
    for replica, net in enumerate(replicas):
        x, y = batch(spec, step, replica)
        for each in net.parameters():
            each.grad = None
        parts = zip(x.chunk(count), y.chunk(count))
        losses.append([body(net, net, *part, spec["loss"], torch.Tensor.backward).detach() for part in parts])
        for each in net.parameters():
            if each.grad is not None:
                each.grad = each.grad / (count * len(replicas))
    for group in zip(*(net.parameters() for net in replicas)):
        grads = [each.grad for each in group if each.grad is not None]
        if grads:
            group[0].grad = sum(grads)
    return losses


def check(spec):
    """The largest difference of losses, weights and buffers after three updates."""
    smp.state.model = smp.state.optimizer = absent.fetch = absent.describe = None
    smp.state.wait = lambda work, kind: work.wait()
    smp.state._world = None
    smp.init(spec["world"])
    torch.manual_seed(spec["seed"])
    net = Net(spec["blocks"])
    replicas = [copy.deepcopy(net) for _ in range(smp.dp_size())]
    for block, told in zip(net.blocks, spec["blocks"]):
        smp.set_partition(block, told["part"])
    optimizer = smp.DistributedOptimizer(optimizer_of(spec, net.parameters()))
    model = smp.DistributedModel(net)
    plain = optimizer_of(spec, replicas[0].parameters())
    schedules = [torch.optim.lr_scheduler.StepLR(each, 1, 0.5) for each in (optimizer, plain) if spec["schedules"]]
    worst = 0.0
    for step in range(3):
        optimizer.zero_grad()
        plain.zero_grad()
        kept = {}
        for part in range(spec["accumulates"]):
            number = step * 2 + part
            x, y = batch(spec, number, smp.dp_rank())
            losses = train(model, x, y, spec["loss"]).outputs
            expected = alone(replicas, plain, spec, number, part)[smp.dp_rank()]
            worst = max(worst, *((one - two).abs().item() for one, two in zip(losses, expected)))
            for each in replicas[0].parameters():
                if each in kept:
                    each.grad = kept[each] if each.grad is None else each.grad + kept[each]
                if each.grad is not None:
                    kept[each] = each.grad
                each.grad = None
        for each, grad in kept.items():
            each.grad = grad
        if spec["clips"]:
            for one in (model, replicas[0]):
                nn.utils.clip_grad_norm_(one.parameters(), 0.1)
        optimizer.step()
        plain.step()
        for schedule in schedules:
            schedule.step()
        with torch.no_grad():
            for other in replicas[1:]:
                for one, two in zip(other.parameters(), replicas[0].parameters()):
                    one.copy_(two)
        if spec["evaluates"]:
            model.eval()
            with torch.no_grad():
                x, _ = batch(spec, 77, smp.dp_rank())
                output = evaluate(model, x).concat()
                for each in replicas:
                    each.eval()
                own = replicas[smp.dp_rank()]
                parts = [[each(part) for part in batch(spec, 77, index)[0].chunk(spec["world"]["microbatches"])]
                         for index, each in enumerate(replicas)]  # fmt: skip
                assert own is not None
                worst = max(worst, (output - torch.cat(parts[smp.dp_rank()])).abs().max().item())
            for each in (model, *replicas):
                each.train()
    state, expected = model.state_dict(), replicas[smp.dp_rank()].state_dict()
    assert list(state) == list(expected)
    for name, value in expected.items():
        if isinstance(value, torch.Tensor):
            worst = max(worst, (state[name].double() - value.double()).abs().max().item())
        else:
            assert state[name] == value, (name, state[name], value)
    return worst


found = []
with open(sys.argv[1], encoding="utf-8") as file:
    for line in file:
        try:
            found.append(check(json.loads(line)))
        except Exception as error:
            found.append(f"{type(error).__name__}: {error}")
        gc.collect()
        torch.distributed.barrier() if not isinstance(found[-1], str) else None
leave(found=found)
