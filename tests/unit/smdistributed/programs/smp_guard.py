"""What happens to each kind of state of a module on another rank: its value, sent, refused, compared or alike.

Each kind is read and changed by the first rank, in a step and outside of steps; the second rank has the module.
"""

import smdistributed.modelparallel.torch as smp
import torch
from another import forget, meet, together
from ending import error_of, leave
from torch import nn

torch.set_default_dtype(torch.float64)
torch.set_num_threads(1)


class Part(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.scale, self.calls, self.log, self.table, self.gone = 1.0, 0, [], {"a": 1}, 5
        self.register_buffer("seen", torch.ones(4))

    def forward(self, x):
        return torch.tanh(self.linear(x)) * self.scale * self.seen

    def get_extra_state(self):
        return {"calls": self.calls}

    def set_extra_state(self, state):
        pass


class Busy(Part):
    """Has other values than its copy elsewhere."""

    def forward(self, x):
        self.calls += 1
        self.log.append(self.calls)
        self.table["a"] += 1
        self.seen += 1
        return super().forward(x)


class Net(nn.Module):
    def __init__(self, part, run):
        super().__init__()
        self.run, self.found = run, None
        self.first, self.block, self.last = nn.Linear(4, 4), part(), nn.Linear(4, 1)

    def forward(self, x):
        h = self.block(torch.tanh(self.first(x)))
        with torch.no_grad():
            smp.state.found = self.run(self.block)
        return self.last(h)


def plain(value):
    return value.tolist() if isinstance(value, torch.Tensor) else value


def read_weight(block):
    return plain(block.linear.weight.detach())


KINDS = {
    "parameters": (read_weight, lambda block: block.linear.weight.mul_(2)),
    "views and conversions of parameters": (
        lambda block: plain(block.linear.weight.T.float().detach()),
        lambda block: block.linear.weight.data[0].zero_(),
    ),
    "parameters and buffers where torch asks no Python function": (
        lambda block: plain(torch.tensor(block.seen)),
        lambda block: torch.zeros(0, dtype=block.seen.dtype).set_(block.seen),
    ),
    "buffers": (lambda block: plain(block.seen + 0), lambda block: block.seen.add_(1)),
    "`requires_grad`": (
        lambda block: block.linear.weight.requires_grad,
        lambda block: block.linear.weight.requires_grad_(False),
    ),
    "plain attributes": (lambda block: (block.scale, block.calls), lambda block: setattr(block, "scale", 0.5)),
    "lists, dicts and other objects in attributes": (
        lambda block: [list(block.log), dict(block.table)],
        lambda block: block.log.append(7),
    ),
    "`vars(module)`": (lambda block: vars(block)["calls"], lambda block: vars(block).update(scale=0.5)),
    "`del module.name`": (None, lambda block: delattr(block, "gone")),
    "another parameter or module in its place": (None, lambda block: setattr(block, "linear", nn.Linear(4, 4))),
    "`module.train()`, `module.eval()`": (lambda block: block.training, lambda block: block.eval()),
    "hooks": (None, lambda block: block.register_forward_hook(lambda *given: smp.state.ran.append(smp.rank()))),
    "`get_extra_state()`": (lambda block: block.get_extra_state(), None),
}
"""By its row in the docs: how it is read, and how it is changed."""


def fresh(part, run):
    forget()
    smp.state.found = None
    torch.manual_seed(5)
    net = Net(part, run)
    smp.set_partition(net.block, 1)
    return together(smp.DistributedModel(net))


@smp.step
def train(model, x):
    loss = model(x).pow(2).mean()
    model.backward(loss)
    return loss


def attempt(call):
    """What is said to it: nothing, refused or compared."""
    text = error_of(call)
    if "has another value on ranks" in text:
        return "compared"
    return "refused" if "rank 1" in text or "behind the division" in text else text


def both(value):
    """What the two ranks have."""
    return smp.allgather(value, smp.PP_GROUP)


def in_step(read, change):
    def run(block):
        if change is not None:
            change(block)
        return read(block) if read is not None else None

    model = fresh(Busy if change is None else Part, run)
    said = attempt(lambda: train(model, torch.ones(2, 4)))
    if said:
        return said
    first, second = both(smp.state.found if smp.rank() == 0 else read and read(model.module.block))
    if change is None:
        return "value" if first == second else f"{first} and not {second}"
    return "sent" if first == second and read is not None else "lost"


@torch.no_grad()
def outside(read, change):
    model = fresh(Busy if change is None else Part, lambda block: None)
    with torch.enable_grad():
        train(model, torch.ones(2, 4))
    found = []
    block = model.module.block
    if change is None:
        said = attempt(lambda: found.append(read(block)))
        (said, first), (_, second) = both((said, found))
        return said or ("value" if first == second else f"{first} and not {second}")
    said = both(attempt(lambda: change(block)) if smp.rank() == 0 else "")[0]
    meet()
    with torch.enable_grad():
        return said or attempt(lambda: train(model, torch.ones(2, 4))) or "alike"


def calls(block):
    """Whose hooks run, where the first rank has one that the second one hasn't."""
    KINDS["hooks"][1](block)
    block(torch.ones(2, 4))


smp.init({"partitions": 2, "auto_partition": False, "default_partition": 0, "skip_tracing": True})
said = {}
for kind, (read, change) in KINDS.items():
    smp.state.ran = []
    said[kind] = {
        "read in a step": in_step(read, None) if read else "–",
        "changed in a step": in_step(None, change) if kind == "hooks" else in_step(read, change) if change else "–",
        "read outside": outside(read, None) if read else "–",
        "changed outside": outside(None, change) if change else "–",
    }
smp.state.ran = []
train(fresh(Part, calls), torch.ones(2, 4))
said["hooks"]["changed in a step"] = "caller" if both(smp.state.ran) == [[0], []] else str(both(smp.state.ran))
leave(said=said)
