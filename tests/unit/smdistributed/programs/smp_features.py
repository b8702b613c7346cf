"""What else steps, models and optimizers in parts can do; two parts, two replicas."""

import copy
import itertools
import os

os.environ["SMP_HINT_SECONDS"] = "0.5"

import smdistributed.modelparallel.torch as smp
import torch
from another import forget
from ending import error_of, leave
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

M = 4
torch.set_default_dtype(torch.float64)
smp.init({"microbatches": M, "ddp": True, "partitions": 2, "active_microbatches": 2})
leader = smp.pp_rank() == 0
done = []


class Net(nn.Module):
    """``way`` switches between modules, and so between the parameters that a step uses."""

    def __init__(self, way=None):
        super().__init__()
        self.a, self.b, self.c, self.d = nn.Linear(6, 8), nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, 3)
        self.drop = nn.Dropout(0.5)
        self.register_buffer("count", torch.zeros(()))

    def forward(self, x, way=None, twice=False):
        h = torch.tanh(self.a(x))
        if way is not None and float(way) > 0:
            h = self.b(h)
        h = self.c(torch.tanh(h))
        return (self.d(h), h) if twice else self.d(h)


def fresh(seed=1, **options):
    """A model in parts, the same in one piece, and an optimizer."""
    forget()
    torch.manual_seed(seed)
    net = Net()
    whole = copy.deepcopy(net)
    optimizer = smp.DistributedOptimizer(torch.optim.Adam(net.parameters(), 0.01))
    return smp.DistributedModel(net, **options), whole, optimizer


def batch(step=0, replica=None):
    generator = torch.Generator().manual_seed(10 * step + (smp.dp_rank() if replica is None else replica))
    return torch.randn(8, 6, generator=generator), torch.randint(3, (8,), generator=generator)


live = []
most = 0


@smp.step
def train(model, x, y, way=None):
    global most
    live.append(x)
    most = max(most, len(live))
    output = model(x, way) if way is not None else model(x)
    loss = functional.cross_entropy(output, y)
    model.backward(loss)
    live.pop()
    return loss


@smp.step
def two_losses(model, x, y):
    output, hidden = model(x, twice=True)
    again = model(x * 2)
    model.backward(functional.cross_entropy(output + again, y))
    hidden = model(x, twice=True)[1]
    model.backward(hidden.pow(2).mean())


@smp.step
def evaluate(model, x):
    output = model(x)
    assert not output.requires_grad
    return output


def alone(whole, loss, step=0, ways=None, divided=True):
    """Gradients of a model in one piece, over all replicas and microbatches."""
    for replica in range(smp.dp_size()):
        x, y = batch(step, replica)
        for index, (xs, ys) in enumerate(zip(x.chunk(M), y.chunk(M))):
            args = () if ways is None else (ways(replica)[index],)
            value = loss(whole, xs, ys, *args) / smp.dp_size()
            (value / M if divided else value).backward()


def simple_loss(whole, x, y, way=None):
    return functional.cross_entropy(whole(x, way), y)


def same(model, whole):
    expected = dict(whole.named_parameters())
    for name, parameter in model.local_named_parameters():
        one, two = parameter.grad, expected[name].grad
        assert (one is None) == (two is None), (name, one, two)
        assert one is None or (one - two).abs().max() < 1e-14, (name, one - two)


# --- two model calls and two backward passes in a step
model, whole, _ = fresh()
two_losses(model, *batch())
alone(whole, lambda m, x, y: functional.cross_entropy(m(x) + m(x * 2), y) + m(x, twice=True)[1].pow(2).mean())
same(model, whole)
done.append("two losses")

# --- gradients add up; sums instead of means
model, whole, _ = fresh(average_grads_across_microbatches=False)
for step in range(2):
    train(model, *batch(step))
    alone(whole, simple_loss, step, divided=False)
same(model, whole)
done.append("sums")

# --- averaged in every second step only; buckets of one parameter
model, whole, _ = fresh(backward_passes_per_step=2, bucket_cap_mb=0.0001)
for step in range(4):
    train(model, *batch(step))
    alone(whole, simple_loss, step)
    if step == 0:
        assert smp.dp_size() > 1 and any(
            (parameter.grad - dict(whole.named_parameters())[name].grad).abs().max() > 1e-9
            for name, parameter in model.local_named_parameters() if parameter.grad is not None
        )  # fmt: skip
    if step % 2:
        same(model, whole)
assert most == (2 if leader else 0)  # active_microbatches: they overlap, and no more of them
done.append("every second step")

# --- other parameters in every step, on every replica: what was sent too early is sent again
model, whole, _ = fresh(bucket_cap_mb=0.0001)
PLANS = [(0, 0), (0, 2), (4, 0), (1, 4), (0, 0), (4, 4), (3, 1)]
for step, plan in enumerate(PLANS):

    def ways(replica, plan=plan):
        return torch.tensor([1.0 if index < plan[replica] else -1.0 for index in range(M)])

    for parameter in (*model.parameters(), *whole.parameters()):
        parameter.grad = None
    train(model, *batch(step), ways(smp.dp_rank()))
    alone(whole, simple_loss, step, ways)
    same(model, whole)
done.append("other ways")

# --- a communication hook of torch's
model, whole, _ = fresh()
model.register_comm_hook(smp.get_dp_process_group(), default_hooks.allreduce_hook)
for step in range(2):
    train(model, *batch(step))
    alone(whole, simple_loss, step)
same(model, whole)
done.append("comm hook")

# --- autocast and no_grad go along
model, whole, _ = fresh()
with torch.autocast("cpu", dtype=torch.bfloat16), torch.no_grad():
    output = evaluate(model.float(), batch()[0].float()).concat()
    assert output.dtype == torch.bfloat16
    assert torch.equal(output, torch.cat([whole.float()(part) for part in batch()[0].float().chunk(M)]))
done.append("autocast")


# --- random numbers: the same in each run, others in each microbatch, and the same again where a module runs again
class Box(nn.Module):
    """On both ranks, with dropout on each."""

    def __init__(self):
        super().__init__()
        self.parts = nn.ModuleList(nn.Sequential(nn.Linear(6, 6), nn.Dropout(0.5)) for _ in range(4))

    def forward(self, x):
        for part in self.parts:
            x = functional.dropout(torch.tanh(part(x)), 0.3)
        return x


class Noisy(nn.Module):
    def __init__(self, again):
        super().__init__()
        self.box, self.again, self.seen = Box(), again, []

    def forward(self, x):
        y = checkpoint(self.box, x, use_reentrant=False) if self.again else self.box(x)
        self.seen.append(y.detach())
        return y * torch.rand(6)


def noisy(again):
    """The gradients of two steps."""
    forget()
    torch.manual_seed(3)
    model = smp.DistributedModel(Noisy(again))
    for _ in range(2):
        torch.manual_seed(4)
        train(model, *batch())
    seen = model.module.seen[-M:]
    assert not leader or all((one == 0).tolist() != (two == 0).tolist() for one, two in itertools.pairwise(seen))
    return {name: parameter.grad for name, parameter in model.local_named_parameters()}, torch.rand(1)


runs = [noisy(again) for again in (False, False, True)]
for gradients, drawn in runs[1:]:
    assert drawn == runs[0][1]
    assert all((gradients[name] - value).abs().max() < 1e-14 for name, value in runs[0][0].items())
done.append("random numbers")

# --- state: before the first step, partial and full, the optimizer's, hooks
seen = []
model, whole, optimizer = fresh()
model.register_post_partition_hook(lambda m, o: seen.append((m is model, o is optimizer, m.partitioned)))
model.register_post_step_hook(lambda m, o: seen.append("step"))
first = copy.deepcopy(model.state_dict())
assert all(torch.equal(first[name], value) for name, value in whole.state_dict().items())
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)
for step in range(2):
    train(model, *batch(step))
    optimizer.step()
    scheduler.step()
    optimizer.zero_grad()
assert seen == [(True, True, True), "step"] and optimizer.param_groups[0]["lr"] == 0.0025
full, part = model.state_dict(), model.local_state_dict()
assert part.pop("_smp_is_partial") and set(part) < set(full)
assert set(part) == {name for name, _ in (*model.local_named_parameters(), *model.local_named_buffers())}
assert sum(parameter.numel() for parameter in model.local_parameters()) < sum(p.numel() for p in model.parameters())
state, local = copy.deepcopy(optimizer.state_dict()), optimizer.local_state_dict()
assert local.pop("_smp_is_partial") and len(local["state"]) < len(state["state"]) == 6, state["state"].keys()
plain = torch.optim.Adam(whole.parameters(), 0.01)
whole.load_state_dict(full)
plain.load_state_dict(state)
assert smp.allgather(list(state["state"]))[0] == sorted(state["state"])
model.load_state_dict(first)
assert all(torch.equal(value, first[name]) for name, value in model.state_dict().items())
for wrong in ({}, {**full, "more": torch.zeros(1)}, {**full, "a.weight": torch.zeros(2), "d.weight": torch.zeros(2)}):
    assert "state_dict" in error_of(model.load_state_dict, wrong), wrong
model.float()  # the buffers that replicas share are still the model's
buffers = dict(model.module.named_buffers())
assert all(buffer is buffers[name] and buffer.dtype is torch.float32 for name, buffer in model.local_named_buffers())
# resumed before the first step: the model from its part, the optimizer from all
part["_smp_is_partial"] = True
model, whole, optimizer = fresh(seed=2)
model.load_state_dict(part)
optimizer.load_state_dict(copy.deepcopy(state))
train(model, *batch(5))
optimizer.step()
whole.load_state_dict(full)
alone(whole, simple_loss, 5)
plain = torch.optim.Adam(whole.parameters(), 0.01)
plain.load_state_dict(state)
plain.step()
after = model.state_dict()
assert all((after[name] - value).abs().max() < 1e-14 for name, value in whole.state_dict().items())
done.append("state")

# --- the leader alone evaluates, while the others wait in a barrier, also where its flags are others
model.eval() if leader else None
if leader:
    for _ in range(2):
        with torch.no_grad():
            output = evaluate(model, batch()[0]).concat()
    whole.eval()
    assert (output - whole(batch()[0])).abs().max() < 1e-14
smp.barrier()
assert model.training is not leader
assert smp.allgather(smp.rank(), smp.PP_GROUP) == smp.get_pp_group()
model.train()
train(model, *batch())
done.append("leader alone")

# --- not before smp.DistributedModel's first step, not outside of a step, not twice
other = model.module.d if leader else model.module.a
MISUSES = (
    lambda: model(batch()[0]), lambda: smp.DistributedModel(Net()), lambda: other(torch.zeros(1, other.in_features)),
    lambda: other.weight.sum(),
)  # fmt: skip
for call in MISUSES:
    words = error_of(call)
    assert "step" in words or "one model" in words, words
assert model.get_module() is model.module and model.d is model.module.d
assert torch.load is not None and os.environ["WORLD_SIZE"] == "4"
done.append("misuse")
import smp_failures  # noqa: E402

leave(done=done, **smp_failures.said)
