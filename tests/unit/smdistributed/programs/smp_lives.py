"""Changes of a divided model between steps: of gradients, heads, parameters, groups and hooks."""

import copy

import smdistributed.modelparallel.torch as smp
import torch
from another import begin, meet, together
from ending import leave
from parts_and_whole import PARTS, SHARDS, TENSORS, WIDTH
from smdistributed.modelparallel.torch.errors import SMPError
from torch import nn

WORLDS = {
    "parts": {**PARTS, "ddp": True},
    "replicas": {"partitions": 1, "microbatches": 2, "ddp": True},
    "shared state": {"partitions": 1, "microbatches": 2, "ddp": True, "shard_optimizer_state": True},
    "tensors": TENSORS,
    "shards": {**SHARDS, "sdp_gradient_clipping": 0.0},
}


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.there, self.last = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, 2)

    def forward(self, x):
        x = torch.tanh(self.first(x))
        x = torch.tanh(self.there(x * self.gain if hasattr(self, "gain") else x))
        x = x + self.there.late if hasattr(self.there, "late") else x
        return self.last(self.more(x) if hasattr(self, "more") else x)


def frozen(net):
    net.first.requires_grad_(False)


def halve_all(parameter):
    parameter.grad.mul_(0.5)


def thaw(net, optimizer, step):
    if step == 1:
        net.first.requires_grad_(True)


def thaw_in_a_group(net, optimizer, step):
    if step == 1:
        net.first.requires_grad_(True)
        optimizer.add_param_group({"params": list(net.first.parameters()), "lr": 0.03})


def freeze(net, optimizer, step):
    if step == 1:
        net.there.requires_grad_(False)


def toggle(net, optimizer, step):
    net.first.requires_grad_(bool(step % 2))
    net.last.weight.requires_grad_(not step % 2)


def head(net, optimizer, step, at=1):
    if step == at:
        torch.manual_seed(7)
        net.last = nn.Linear(WIDTH, 2)
        optimizer.add_param_group({"params": list(net.last.parameters())})


def early_head(net, optimizer, step):
    head(net, optimizer, step, 0)


def parameter(net, optimizer, step):
    if step == 1:
        net.register_parameter("gain", nn.Parameter(torch.full((WIDTH,), 0.7)))
        optimizer.add_param_group({"params": [net.gain]})


def module(net, optimizer, step):
    if step == 1:
        torch.manual_seed(7)
        net.add_module("more", nn.Linear(WIDTH, WIDTH))
        optimizer.add_param_group({"params": list(net.more.parameters())})


def buffer(net, optimizer, step):
    if step:
        net.there.register_buffer("late", torch.full((WIDTH,), 0.3 * step))


def identity(net, optimizer, step):
    if step == 1:
        net.there = nn.Identity()


def hook(net, optimizer, step):
    if step == 1:
        net.last.weight.register_post_accumulate_grad_hook(halve_all)


def hook_of_tensor(net, optimizer, step):
    if step == 1:
        net.last.weight.register_hook(torch.tanh)


def hook_of_part(net, optimizer, step):
    if step == 1:
        net.there.weight.register_hook(torch.tanh)


def on_one_rank(net, optimizer, step):
    if step == 1 and getattr(net, "rank", 0) == 0:
        net.there.weight.requires_grad_(False)


def other_heads(net, optimizer, step):
    if step == 1 and getattr(net, "rank", 0) == 0:
        net.last = nn.Identity()


CASES = [
    (thaw, frozen), (thaw_in_a_group, frozen), (toggle, frozen), freeze, early_head, head, parameter, module, buffer,
    identity, hook, hook_of_tensor, hook_of_part, on_one_rank, other_heads,
]  # fmt: skip


def batch(step, replica):
    generator = torch.Generator().manual_seed(10 * step + replica)
    return torch.randn(8, WIDTH, generator=generator), torch.randint(2, (8,), generator=generator)


def loss_of(model, x, y):
    return nn.functional.cross_entropy(model(x), y)


@smp.step
def train(model, x, y):
    loss = loss_of(model, x, y)
    model.backward(loss)
    return loss


def optimizer_of(net):
    return torch.optim.SGD([each for each in net.parameters() if each.requires_grad], 0.1, momentum=0.9)


def accumulate(net, step, replicas):
    """The mean gradients of all replicas' microbatches, each replica by itself."""
    found = {}
    before = [each for each in net.parameters() if not each.requires_grad]
    for replica in range(replicas):
        for each in net.parameters():
            each.grad = None
        for part in zip(*(each.chunk(2) for each in batch(step, replica))):
            loss_of(net, *part).backward()
        for each in net.parameters():
            if each.grad is not None:
                found[each] = found.get(each, 0) + each.grad / (2 * replicas)
    for each in net.parameters():
        each.grad = found.get(each)
    assert not any(each.grad is not None for each in before)


def tried(change, prepare, world):
    """The distance of weights from those of one process, or the error's words."""
    begin(world)
    torch.manual_seed(5)
    net = Net()
    prepare(net)
    whole = copy.deepcopy(net)
    net.rank = smp.rank()
    if world["partitions"] > 1:
        smp.set_partition(net.there, 1)
    if world.get("tensor_parallel_degree"):
        smp.set_tensor_parallelism(net.there)
    model = together(smp.DistributedModel(net))
    made = torch.optim.SGD(net.parameters(), 0.1, momentum=0.9)
    alone = torch.optim.SGD(whole.parameters(), 0.1, momentum=0.9)
    if change is thaw_in_a_group:
        made, alone = optimizer_of(net), optimizer_of(whole)
    optimizer = smp.DistributedOptimizer(made)
    worst = 0.0
    try:
        for step in range(3):
            change(model.module, optimizer, step)
            change(whole, alone, step)
            optimizer.zero_grad()
            train(model, *batch(step, smp.dp_rank()))
            accumulate(whole, step, smp.dp_size())
            optimizer.step()
            alone.step()
            state, expected = model.state_dict(), whole.state_dict()
            assert state.keys() == expected.keys(), (state.keys(), expected.keys())
            worst = max(worst, *((state[name] - each).abs().max().item() for name, each in expected.items()))
    except SMPError as error:
        return str(error)
    return worst


def frozen_nowhere(net):
    """Everything is trained."""


said = {}
for case in CASES:
    change, prepare = case if isinstance(case, tuple) else (case, frozen_nowhere)
    for name, world in WORLDS.items():
        said[f"{change.__name__}, {name}"] = tried(change, prepare, world)
        meet()
leave(said=said)
