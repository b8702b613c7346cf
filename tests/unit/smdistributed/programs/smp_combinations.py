"""Trains one model in many ways at once, compares each with one process, saves and resumes it; a world of four."""

import copy
import os
import sys

import smdistributed.modelparallel.torch as smp
import torch
from another import forget
from ending import error_of, leave
from smdistributed.modelparallel.torch.patches import checkpoint as again
from torch import nn

MICROBATCHES = 2
STEPS = 2
FOLDER = sys.argv[1]
torch.set_default_dtype(torch.float64)


class Scale(nn.Module):
    """Parameters of its own: one in another order in memory, and a single number."""

    def __init__(self, size):
        super().__init__()
        self.turned = nn.Parameter(0.1 * torch.randn(size, 3).t())
        self.one = nn.Parameter(torch.ones(()))

    def forward(self, x):
        return x + self.one * (x @ self.turned.t() @ self.turned)


class Net(nn.Module):
    """Tied weights, a row of layers, functions that compute again, a frozen layer, and one that is never used."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(30, 24)
        self.layers = nn.Sequential(
            *(nn.Sequential(nn.Linear(24, 40), nn.Tanh(), nn.Linear(40, 24), Scale(24)) for _ in range(3)),
            nn.ReLU(), nn.Linear(24, 24),
        )  # fmt: skip
        self.row = nn.Sequential(nn.Linear(24, 24), nn.Tanh(), nn.Linear(24, 24), nn.Linear(24, 24))
        self.frozen = nn.Linear(24, 24).requires_grad_(False)
        self.unused = nn.Linear(24, 5)
        self.norm = nn.LayerNorm(24)
        self.head = nn.Linear(24, 30, bias=False)
        self.head.weight = self.embed.weight
        self.strategy = None

    def forward(self, x):
        x = self.layers(self.embed(x))
        if self.strategy is None:
            x = self.norm(self.row(x))
        else:
            x = again.checkpoint(self.norm, again.checkpoint_sequential(self.row, x, strategy=self.strategy))
        return self.head(self.frozen(x) + 0.1)


class Chain(nn.Sequential):
    """For half precision: in it, every gradient is the same sum in one process and in several."""

    def __init__(self):
        super().__init__(*(nn.Sequential(nn.Linear(16, 16), nn.Tanh()) for _ in range(4)), nn.Linear(16, 4))


def groups(net):
    """Two groups with options of their own, in another order than the model's."""
    bias = [each for each in net.parameters() if each.dim() < 2]
    return [{"params": [each for each in net.parameters() if each.dim() > 1]}, {"params": bias, "weight_decay": 0.0}]


# with tiny eps they divide gradients of nearly 0 by themselves, which makes rounding errors large
OPTIMIZERS = {
    "adamw": lambda net: torch.optim.AdamW(groups(net), 0.01, eps=1e-3, weight_decay=0.1),
    "sgd": lambda net: torch.optim.SGD(groups(net), 0.05, momentum=0.9, nesterov=True, weight_decay=0.01),
    "adagrad": lambda net: torch.optim.Adagrad(groups(net), 0.05, eps=1e-3),
    "adafactor": lambda net: torch.optim.Adafactor(groups(net), 0.05),
    "rmsprop": lambda net: torch.optim.RMSprop(net.parameters(), 0.01, eps=0.1, momentum=0.5),
}


@smp.step
def train(model, x, y):
    loss = loss_of(model(x), y)
    model.backward(loss)
    return loss


def loss_of(output, y):
    return nn.functional.cross_entropy(output.flatten(0, -2), y.flatten())


def batch(step, replica):
    generator = torch.Generator().manual_seed(100 * step + replica)
    return torch.randint(30, (4, 5), generator=generator), torch.randint(30, (4, 5), generator=generator)


def reference(net, plain, clip, steps):
    """Trains in one process what all ranks together do, and returns the norms of the gradients."""
    norms = []
    for step in steps:
        plain.zero_grad()
        for replica in range(smp.rdp_size()):
            x, y = batch(step, replica)
            for xs, ys in zip(x.chunk(MICROBATCHES), y.chunk(MICROBATCHES)):
                (loss_of(net(xs), ys) / (MICROBATCHES * smp.rdp_size())).backward()
        if clip is not None:
            norms.append(float(nn.utils.clip_grad_norm_(net.parameters(), *clip)))
        plain.step()
    return norms


def begin(**world):
    smp.state._world = None  # a world per process is what scripts have
    smp.init({"microbatches": MICROBATCHES, "ddp": True, **world})


def prepared(make, optimizer, strategy=None, **more):
    """A wrapped model and optimizer; the values of rank 0 count."""
    forget()
    torch.manual_seed(smp.rank())
    net = make()
    if smp.tp_size() > 1:
        smp.set_tensor_parallelism(net.row)
        smp.set_tensor_parallelism(net.layers[0][0])
    if strategy:
        net.strategy = strategy if strategy != "each" else None
        smp.set_activation_checkpointing(net.layers, strategy=strategy)
        smp.set_activation_checkpointing(net.unused)
    wrapped = smp.DistributedOptimizer(optimizer(net), **more)
    return smp.DistributedModel(net), wrapped


def alone(make):
    torch.manual_seed(0)
    return make()


def run(model, optimizer, clip, steps):
    norms = []
    for step in steps:
        optimizer.zero_grad()
        train(model, *batch(step, smp.rdp_rank()))
        if clip is not None:
            norms.append(float(nn.utils.clip_grad_norm_(model.parameters(), *clip)))
        optimizer.step()
    return norms


def distance(one, two):
    if not isinstance(one, torch.Tensor):
        return abs(one - two) / max(1.0, abs(two))
    assert one.shape == two.shape and one.dtype == two.dtype, (one.shape, two.shape, one.dtype, two.dtype)
    return float((one - two).detach().abs().max()) if one.numel() else 0.0


def of_dicts(one, two):
    assert list(one) == list(two), (list(one), list(two))
    return max(of_dicts(one[key], two[key]) if isinstance(two[key], dict) else distance(one[key], two[key])
               for key in two)  # fmt: skip


def check(kind, clip, strategy):
    """The largest error, and how many elements of the optimizer's state are on this rank."""
    net = alone(Net)
    plain = OPTIMIZERS[kind](net)
    expected = reference(net, plain, clip, range(STEPS))
    model, optimizer = prepared(Net, OPTIMIZERS[kind], strategy)
    norms = run(model, optimizer, clip, range(STEPS))
    errors = [distance(one, two) for one, two in zip(norms, expected)]
    whole = model.state_dict()
    errors.append(of_dicts(whole, net.state_dict()))
    state, plainly = optimizer.state_dict(), plain.state_dict()
    errors.append(of_dicts(state["state"], plainly["state"]))
    for ours, theirs in zip(state["param_groups"], plainly["param_groups"]):
        assert ours == theirs, (ours, theirs)
    held = sum(each.numel() for values in optimizer.state.values() for each in values.values()
               if isinstance(each, torch.Tensor) and each.dim())  # fmt: skip
    # goes on, before the first step of another model: from all of it, and from what this rank has itself
    own = copy.deepcopy(optimizer.local_state_dict(gather_if_shard=False))
    full = copy.deepcopy(state)
    reference(net, plain, clip, range(STEPS, STEPS + 1))
    for saved in (full, own):
        model, optimizer = prepared(Net, OPTIMIZERS[kind], strategy)
        model.load_state_dict(whole)
        optimizer.load_state_dict(saved)
        run(model, optimizer, clip, range(STEPS, STEPS + 1))
        errors.append(of_dicts(model.state_dict(), net.state_dict()))
    return {"error": max(errors), "held": held}


COMBINATIONS = {
    (1, 1, "interleaved", "cluster"): (("adamw", None, "contiguous"), ("adafactor", (0.01,), None)),
    (2, 1, "simple", "spread"): (("sgd", (0.01, 1.0), "group_2"), ("adagrad", (0.5,), "contiguous")),
    (2, 1, "interleaved", "cluster"): (("rmsprop", (0.02, float("inf")), "each"), ("adafactor", None, "contiguous")),
    (4, 1, "interleaved", "cluster"): (("adamw", (0.01,), "contiguous"),),
    (1, 2, "interleaved", "cluster"): (("adamw", (0.01,), None),),
    (2, 2, "interleaved", "cluster"): (("sgd", (0.01, 1.0), None),),
}
result = {}
for (partitions, tensors, pipeline, placement), cases in COMBINATIONS.items():
    begin(partitions=partitions, tensor_parallel_degree=tensors, prescaled_batch=True, pipeline=pipeline,
          placement_strategy=placement, shard_optimizer_state=True, offload_activations=True)  # fmt: skip
    for kind, clip, strategy in cases:
        name = f"{kind}, clip {clip}, {strategy}, {partitions} partitions, tensors over {tensors}, {pipeline}"
        result[name] = check(kind, clip, strategy)

# --- sharded or not: the same to the last bit
ended = []
for shard in (True, False):
    begin(partitions=2, shard_optimizer_state=shard)
    model, optimizer = prepared(Net, lambda net: torch.optim.AdamW(net.parameters(), 0.01))
    run(model, optimizer, (0.5,), range(10))
    ended.append(model.state_dict())
assert all(torch.equal(one, two) for one, two in zip(ended[0].values(), ended[1].values()))


# --- half precision, with copies in float32
def half_batch(step, replica):
    generator = torch.Generator().manual_seed(100 * step + replica)
    return torch.randn(4, 1, 16, generator=generator), torch.randint(4, (4, 1), generator=generator)


def half_reference(net, copies, plain, half, steps, scale, clip):
    for step in steps:
        total = [torch.zeros_like(each) for each in net.parameters()]
        for replica in range(smp.rdp_size()):
            net.zero_grad()
            x, y = half_batch(step, replica)
            for xs, ys in zip(x.chunk(MICROBATCHES), y.chunk(MICROBATCHES)):
                (loss_of(net(xs.to(half)).float(), ys) * scale).backward()
            for each, parameter in zip(total, net.parameters()):
                each += parameter.grad * (1 / MICROBATCHES) / smp.rdp_size()
        for one, each in zip(copies, total):
            one.grad = each.float() / scale
        nn.utils.clip_grad_norm_(copies, clip)
        plain.step()
        for one, parameter in zip(copies, net.parameters()):
            parameter.data.copy_(one)


def half_run(model, optimizer, steps, clip):
    for step in steps:
        optimizer.zero_grad()
        loss = train(model, *half_batch(step, smp.rdp_rank())).reduce_mean()
        assert loss.dtype == torch.float32
        optimizer.clip_master_grads(clip)
        optimizer.step()


def adam(net):
    return torch.optim.Adam(net.parameters(), 0.01)


SCALE = {"static_loss_scale": None, "dynamic_loss_scale": True,
         "dynamic_loss_args": {"init_scale": 2.0**10, "scale_window": 4}}  # fmt: skip
torch.set_default_dtype(torch.float32)
for kind, partitions, shard in (("fp16", 2, True), ("bf16", 2, False)):
    half = torch.float16 if kind == "fp16" else torch.bfloat16
    more = SCALE if kind == "fp16" else {}
    scale = 2.0**10 if kind == "fp16" else 1.0
    begin(partitions=partitions, shard_optimizer_state=shard, **{kind: True})
    net = alone(Chain).to(half)
    copies = [nn.Parameter(each.detach().float()) for each in net.parameters()]
    plain = torch.optim.Adam(copies, 0.01)
    half_reference(net, copies, plain, half, range(3), scale, 0.1)
    model, optimizer = prepared(Chain, adam, **more)
    half_run(model, optimizer, range(3), 0.1)
    whole, state = model.state_dict(), optimizer.state_dict()
    masters = list(state["_smp_fp16_states"]["copies"].values())
    errors = [of_dicts(whole, net.state_dict()), *map(distance, masters, copies),
              of_dicts(state["state"], plain.state_dict()["state"])]  # fmt: skip
    # an overflow on one rank alone: nobody steps
    last = list(model.local_parameters())[-1]
    if kind == "fp16":
        hook = last.register_hook(lambda gradient: gradient * float("inf")) if smp.pp_rank() == 1 else None
        optimizer.zero_grad()
        train(model, *half_batch(3, smp.rdp_rank()))
        assert optimizer.clip_master_grads(0.1) == -1
        optimizer.step()
        assert optimizer.overflow and optimizer.loss_scale == 2.0**9
        hook.remove() if hook else None
        assert of_dicts(model.state_dict(), whole) == 0
        scale = 2.0**9
    for tag, partial in (("part", True), ("whole", False)):
        smp.save_checkpoint(os.path.join(FOLDER, f"{kind}{partitions}"), tag, partial, model, optimizer, {"step": 3})
    half_reference(net, copies, plain, half, range(3, 5), scale, 0.1)
    # resumed with the same degrees, with other replicas, and with other partitions
    for tag, sharded in (("part", shard), ("part", not shard), ("whole", shard)):
        begin(partitions=partitions, shard_optimizer_state=sharded, **{kind: True})
        model, optimizer = prepared(Chain, adam, **more)
        said = smp.resume_from_checkpoint(os.path.join(FOLDER, f"{kind}{partitions}"), tag, partial=tag == "part")
        assert said == {"step": 3}
        half_run(model, optimizer, range(3, 5), 0.1)
        assert not optimizer.overflow and optimizer.loss_scale == scale
        errors += [of_dicts(model.state_dict(), net.state_dict())]
    for other in (4, 1):  # at other degrees: from all of it, not from parts
        begin(partitions=other, shard_optimizer_state=True, **{kind: True})
        model, optimizer = prepared(Chain, adam, **more)
        smp.resume_from_checkpoint(os.path.join(FOLDER, f"{kind}{partitions}"), "whole", partial=False)
        errors += [of_dicts(model.state_dict(), whole), of_dicts(optimizer.state_dict()["state"], state["state"])]
        train(model, *half_batch(3, smp.rdp_rank()))
        errors += [of_dicts(optimizer.state_dict()["state"], state["state"]),
                   *map(distance, optimizer.state_dict()["_smp_fp16_states"]["copies"].values(), masters)]  # fmt: skip
        parts = error_of(smp.resume_from_checkpoint, os.path.join(FOLDER, f"{kind}{partitions}"), "part")
        assert "save the whole model" in parts, parts
    result[f"{kind}, {partitions} partitions, sharded: {shard}"] = {"error": max(errors), "held": 0}
smp.barrier()
leave(files=sorted(os.listdir(os.path.join(FOLDER, "fp162", "part_partial"))), **result)
